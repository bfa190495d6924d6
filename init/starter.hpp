// Finds the program that started this container, so that a remedy names its option: Apptainer and Singularity,
// Charliecloud, enroot, and a step of Slurm. They have no daemon, and leave variables and mounts.
#pragma once

#include <string>

namespace init {

// Remedies that depend on the starter.
inline constexpr const char* kNodeRemedy =
    "if this is a container, add the device: rdma-hook, CDI, a device plugin, --device=/dev/infiniband or --bind "
    "/dev/infiniband";
inline constexpr const char* kCgroupRemedy =
    "allow the device: rdma-hook, CDI, a device plugin or --device=/dev/infiniband";
inline constexpr const char* kSysRemedy = "mount /sys into the container";
inline constexpr const char* kDriverRemedy = "load the HCA's driver on the node, if the node has an HCA";
inline constexpr const char* kMemlockRemedy =
    "raise the limit with rdma-hook, `--ulimit memlock=-1` (Docker, Podman), default_ulimits in crio.conf (CRI-O) "
    "or LimitMEMLOCK=infinity in containerd's unit";
// A process without CAP_SYS_RESOURCE of the initial user namespace cannot raise a hard limit (setrlimit(2)).
inline constexpr const char* kRootlessMemlockRemedy =
    "raise the hard limit of the engine's user on the node: LimitMEMLOCK=infinity in user@.service, or memlock in "
    "/etc/security/limits.conf; a rootless engine cannot raise it";

struct Starter {
  enum class Engine { kOther, kApptainer, kCharliecloud, kEnroot };
  Engine engine = Engine::kOther;
  bool slurm = false;       // the container runs in a job of Slurm
  bool hides_hcas = false;  // a file system covers /sys/class/infiniband, as that of enroot's 99-mellanox.sh
};

// Reads the environment of this process, and the mounts that prove the engine of a variable. With has_rdma it reads
// other mounts too: without RDMA in the kernel, no remedy depends on them. rootfs: the root of a container that enroot
// prepares; empty: this container.
Starter find_starter(const std::string& rootfs, bool has_rdma = true);

// Returns the remedy for a container of this starter: another one in place of the remedies above. Pure.
std::string remedy_for(const Starter& starter, std::string remedy);

}  // namespace init
