#include "init/starter.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace init {
namespace {

using Engine = Starter::Engine;

// Returns true if one of the variables has a value.
bool is_set(std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value != '\0';
  });
}

// Returns true if the regular file is a mount. Before Linux 5.8 it returns false.
bool is_mount(const char* path) {
  struct statx info {};
  return ::statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) == 0 && S_ISREG(info.stx_mode) &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

const char* bind_remedy(Engine engine) {
  switch (engine) {
    case Engine::kApptainer:
      // Without its own /dev, Apptainer skips binds below /dev.
      return "start the container with `--bind /dev/infiniband`, and without `--no-mount dev`";
    case Engine::kCharliecloud:
      return "start the container with `--bind /dev/infiniband`";
    case Engine::kEnroot:
      return "leave ENROOT_RESTRICT_DEV and ENROOT_UNSHARE_IPC unset; or mount it with `--container-mounts "
             "/dev/infiniband:/dev/infiniband` (pyxis), and start the command with `rdma-init --`";
    case Engine::kOther:
      break;
  }
  return kNodeRemedy;
}

}  // namespace

Starter find_starter(const std::string& rootfs, bool has_rdma) {
  Starter starter;
  // `apptainer exec --cleanenv` sets its variables too. A job that was submitted from such a container has the
  // variables of the engine too, but not the mounts that Apptainer 1.4 and Charliecloud 0.38 make by default.
  if (is_set({"CH_RUNNING"})) starter.engine = Engine::kCharliecloud;
  if (is_set({"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"})) starter.engine = Engine::kApptainer;
  if (starter.engine != Engine::kOther && !is_mount("/etc/passwd") && !is_mount("/etc/resolv.conf"))
    starter.engine = Engine::kOther;
  // The lock file of enroot (enroot 4.1, src/runtime.sh), which no other engine has.
  if (!rootfs.empty() || (has_rdma && is_mount("/.lock"))) starter.engine = Engine::kEnroot;
  starter.slurm = is_set({"SLURM_JOB_ID"});
  struct statfs info {};
  starter.hides_hcas =
      has_rdma && ::statfs((rootfs + "/sys/class/infiniband").c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
  return starter;
}

std::string remedy_for(const Starter& starter, std::string remedy) {
  if (remedy == kNodeRemedy) return bind_remedy(starter.engine);
  // Apptainer, Charliecloud and enroot make no device cgroup, and `apptainer exec --cleanenv` drops Slurm's variables.
  if (remedy == kCgroupRemedy && (starter.slurm || starter.engine != Engine::kOther))
    return "request the HCAs of this job, such as --gres=rdma:1";
  if (remedy == kSysRemedy && starter.engine == Engine::kApptainer) {
    return "start the container with `--bind /sys`, or without `--no-mount sys`";
  }
  if (remedy == kDriverRemedy && starter.hides_hcas) {
    return "request HCAs for this container; with enroot, name them in MELLANOX_VISIBLE_DEVICES, or set it to void: "
           "its 99-mellanox.sh hides all others, and knows only mlx4 and mlx5";
  }
  if (remedy == kDriverRemedy && starter.engine == Engine::kEnroot) remedy += "; or leave ENROOT_UNSHARE_NET unset";
  if (remedy != kMemlockRemedy && remedy != kRootlessMemlockRemedy) return remedy;
  if (starter.slurm) {
    return "set LimitMEMLOCK=infinity in slurmd.service, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf: "
           "otherwise the limit is that of the shell that submitted the job";
  }
  if (starter.engine == Engine::kOther) return remedy;
  return "raise the limit of the shell that starts the container: memlock in /etc/security/limits.conf, then log in "
         "again";
}

}  // namespace init
