#include "hook/apply/live/run_steps.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/file.hpp"
#include "base/process/cgroup.hpp"
#include "base/process/run_in_child.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"
#include "hook/apply/live/device_cgroup.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/plan/plan.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestMap = std::size_t{64} << 10;  // 340 lines (user_namespaces(7))

Result<UniqueFd> open_proc() {
  UniqueFd proc(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!proc.ok()) return sys_error(errno, "cannot open `/proc`");
  // The check is needed, because a mount could hide the real /proc.
  if (!is_on(proc.get(), PROC_SUPER_MAGIC))
    return Error{"cannot use `/proc`: it is not a proc file system", 0, "mount proc at /proc where the hook runs"};
  return proc;
}

Error ended_error(pid_t pid) {
  return Error{fmt::format("cannot find the process {} of the container: it has ended", pid), ESRCH,
               "start the container again"};
}

Result<UniqueFd> open_namespace(int proc, const std::string& process) {
  const std::string path = process + "/ns/mnt";
  UniqueFd fd(openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) {
    Error error = sys_error(errno, "cannot open `/proc/{}`", path);
    if (error.code == EACCES) error.hint = "use --device or CDI for rootless containers";
    return error;
  }
  if (!is_on(fd.get(), NSFS_MAGIC)) return make_error("cannot use `/proc/{}`: it is not a namespace", path);
  return fd;
}

Result<UniqueFd> open_other_namespace(int proc, pid_t pid) {
  UniqueFd theirs = TRY(open_namespace(proc, std::to_string(pid)));
  const auto id = file_id(theirs.get());
  struct stat ours {};
  if (!id || fstatat(proc, "self/ns/mnt", &ours, 0) != 0) return sys_error(errno, "cannot read `/proc/self/ns/mnt`");
  // All namespace files are on one file system, whose type open_namespace() has checked.
  if (id->dev != ours.st_dev) return make_error("cannot use `/proc/self/ns/mnt`: it is not a namespace");
  // The inode of a namespace file identifies the namespace (namespaces(7)).
  if (id->ino == ours.st_ino) {
    return Error{
        fmt::format("cannot use process {}: it shares the node's mount namespace, so it is not the init of a container",
                    pid),
        0, "add a mount namespace or the device nodes to the container's config.json"};
  }
  return theirs;
}

Result<std::string> read_at(int proc, const std::string& path, std::size_t limit) {
  const UniqueFd fd(openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "cannot open `/proc/{}`", path);
  return read_text(fd.get(), limit, "/proc/" + path);
}

Result<MappedRoot> read_mapped_root(int proc, pid_t pid) {
  const std::string uids = TRY(read_at(proc, fmt::format("{}/uid_map", pid), kLongestMap));
  const std::string gids = TRY(read_at(proc, fmt::format("{}/gid_map", pid), kLongestMap));
  const auto owner = parse_mapped_root(uids, gids);
  if (owner) return *owner;
  return Error{
      fmt::format("cannot make device nodes for the process {}: its user namespace does not map uid 0 and gid 0", pid),
      0, "map uid 0 and gid 0, or add the device nodes to the container's config.json"};
}

// Returns the id outside the user namespace to which the id 0 inside is mapped, from a text of uid_map or gid_map.
std::optional<std::uint32_t> parse_map(std::string_view text) {
  for (const std::string_view line : base::split(text, '\n')) {
    std::vector<std::uint32_t> numbers;
    for (const std::string_view word : base::split(line, ' '))
      if (const auto number = base::parse_number<std::uint32_t>(word)) numbers.push_back(*number);
    // A line has the first id inside the user namespace, the first id outside, and the number of ids.
    if (numbers.size() == 3 && numbers[0] == 0 && numbers[2] > 0) return numbers[1];
  }
  return std::nullopt;
}

Result<FileId> find_rootfs(const std::string& path) {
  struct stat status {};
  const int failed = stat(path.c_str(), &status) != 0 ? errno : S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
  if (failed != 0) return sys_error(failed, "cannot open the container's root file system `{}`", path);
  return FileId{status.st_dev, status.st_ino};
}

// Returns true if this process is not root of the node: it has another uid, or is in a user namespace. Such a process
// cannot change device rules.
bool is_rootless() {
  return geteuid() != 0 || base::is_in_initial_userns() == false;
}

Result<UniqueFd> open_detached(const std::string& path) {
  UniqueFd tree(open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW));
  if (!tree.ok()) return sys_error(errno, "cannot make a bind mount of `{}`", path);
  return tree;
}

// Makes a detached overlay mount with fsopen(2) and fsmount(2). mount(2) would need a mount point on the node.
Result<UniqueFd> open_overlay(const BindDirectory& bind) {
  const UniqueFd context(fsopen("overlay", FSOPEN_CLOEXEC));
  const auto set = [&](const char* name, const std::string& value) {
    return fsconfig(context.get(), FSCONFIG_SET_STRING, name, value.c_str(), 0) == 0;
  };
  if (context.ok() && set("source", bind.source) && set("lowerdir", bind.layers) &&
      fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
    UniqueFd tree(fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
    if (tree.ok()) return tree;
  }
  Error error =
      sys_error(errno, "cannot make an overlay of `{}`, which a container with CAP_SYS_ADMIN needs", bind.source);
  error.hint = "load the kernel module `overlay` or set \"sysfs_view\": false";
  return error;
}

bool is_file_step(const Step& step) {
  return std::holds_alternative<MakeNode>(step) || std::holds_alternative<BindDirectory>(step);
}

bool is_lent(const Step& step) {
  const auto* bind = std::get_if<BindDirectory>(&step);
  return bind && bind->lent;
}

// The run of the steps on one container.
class StepRun {
 public:
  StepRun(const LiveContainer& container, Engine engine) : container_(container), engine_(engine) {}

  // Runs the steps in their order. Returns their warnings.
  Result<std::vector<std::string>> run(const std::vector<Step>& steps) {
    std::vector<Step> files;
    std::ranges::copy_if(steps, std::back_inserter(files),
                         [](const Step& step) { return is_file_step(step) && !is_lent(step); });
    // One child process makes all files, because a fork costs more time than making the files.
    if (!files.empty()) TRY_VOID(change_files(files));
    for (const Step& step : steps) {
      if (const auto* devices = std::get_if<AllowDevices>(&step)) {
        TRY_VOID(allow(*devices));
      } else if (const auto* limits = std::get_if<LimitRdma>(&step)) {
        TRY_VOID(limit(*limits));
      } else if (const auto* memlock = std::get_if<SetMemlock>(&step)) {
        TRY_VOID(set_memlock(*memlock));
      } else if (is_lent(step)) {
        mount_lent(step);
      }
    }
    TRY_VOID(check_alive(container_));
    return std::move(warnings_);
  }

 private:
  // The steps below the container's root. Each has the node's directory or device node as a detached mount, which must
  // be opened before the process joins the container's mount namespace.
  using FileSteps = std::vector<std::pair<Step, UniqueFd>>;

  Result<void> allow_in(const OpenCgroup& group, const AllowDevices& step) {
    const auto& [cgroup, directory] = group;
    auto change = cgroup.kind == CgroupKind::kV1Devices ? allow_devices_v1(cgroup, directory.get(), step.devices)
                                                        : allow_devices_v2(cgroup, directory.get(), step.devices);
    if (!change) {
      const int code = change.error().code;
      // Fails for root: otherwise the container would start without access to its devices.
      if ((code != EPERM && code != EACCES) || !is_rootless()) return std::move(change).error();
      warnings_.push_back(
          fmt::format("cannot change the device rules of the container's cgroup without root ({}): only the modes "
                      "of the node's device nodes apply",
                      change.error().message));
      return {};
    }
    append(std::move(change->warnings), warnings_);
    if (change->is_reset_by_systemd) {
      warnings_.push_back(fmt::format(
          "`systemctl daemon-reload` or a change of the unit's properties will undo the device rules of the "
          "cgroup `{}`: use rdma-runtime, NRI or CDI to keep the rules",
          cgroup.path));
    }
    return {};
  }

  Result<void> allow(const AllowDevices& step) {
    const std::vector<OpenCgroup> cgroups = TRY(open_device_cgroups(container_.init.pid));
    // The cgroups were looked up by PID. If the container's process still lives, the cgroups are the container's. After
    // the end of the process, another process may have had this PID.
    TRY_VOID(check_alive(container_));
    if (cgroups.empty())
      warnings_.emplace_back("no cgroup restricts the container's devices: only the modes of device nodes apply");
    for (const OpenCgroup& cgroup : cgroups)
      TRY_VOID(allow_in(cgroup, step));
    return {};
  }

  // Opens a detached bind mount of the node's device node, and checks its number: udev may have given the path to
  // another device after the plan was made.
  Result<UniqueFd> open_source(const MakeNode& node) {
    UniqueFd tree = TRY(open_detached(node.source));
    struct stat status {};
    if (fstat(tree.get(), &status) != 0) return sys_error(errno, "cannot read `{}`", node.source);
    if (!S_ISCHR(status.st_mode) || status.st_rdev != makedev(node.major, node.minor))
      return make_error("cannot bind mount `{}`: it is not the character device {}:{}", node.source, node.major,
                        node.minor);
    // In the container's user namespace, owner and group of the node are not mapped, so only the mode bits for other
    // users count.
    if ((status.st_mode & 06) != 06) {
      warnings_.push_back(fmt::format(
          "`{}` of the node has mode {:04o}: users of a container with a user namespace can open it only with "
          "mode 0666; add a udev rule with MODE=\"0666\"",
          node.source, status.st_mode & 0777));
    }
    return tree;
  }

  // Opens the source of each step as a detached mount. Call it in the node's mount namespace, in which the source
  // paths are valid.
  Result<FileSteps> prepare(const std::vector<Step>& steps, bool bind_nodes) {
    FileSteps prepared;
    for (const Step& step : steps) {
      auto& [next, tree] = prepared.emplace_back(step, UniqueFd());
      if (auto* node = std::get_if<MakeNode>(&next)) {
        if (bind_nodes && !node->bind) {
          node->bind = true;
          node->source = node->path;
        }
        if (node->bind) tree = TRY(open_source(*node));
      } else if (const auto* bind = std::get_if<BindDirectory>(&next)) {
        tree = TRY(bind->layers.empty() ? open_detached(bind->source) : open_overlay(*bind));
      }
    }
    return prepared;
  }

  Result<void> run_file_steps(const FileSteps& steps) {
    return run_in_mount_namespace(container_.mount_namespace.get(), [&]() -> Result<void> {
      auto opened = ContainerRoot::open(container_.root_path, container_.rootfs, container_.node, container_.mounts);
      if (!opened) return std::move(opened).error();
      // The process ends after this function, and its descriptors with it, so nothing closes them one by one.
      const ContainerRoot& root = *new ContainerRoot(std::move(*opened));
      for (const auto& [step, tree] : steps) {
        if (const auto* node = std::get_if<MakeNode>(&step)) {
          TRY_VOID(node->bind ? root.bind_node(*node, tree.get(), container_.owner.value_or(MappedRoot{}))
                              : root.make_node(*node));
        } else if (const auto* bind = std::get_if<BindDirectory>(&step)) {
          TRY_VOID(root.bind_directory(*bind, tree.get(), container_.owner.value_or(MappedRoot{})));
        }
      }
      return {};
    });
  }

  Result<void> change_files(const std::vector<Step>& steps) {
    FileSteps prepared = TRY(prepare(steps, false));
    if (prepared.empty()) return {};
    auto done = run_file_steps(prepared);
    std::vector<int> trees;
    for (auto& [step, tree] : prepared)
      if (tree.ok()) trees.push_back(tree.release());
    base::close_all(trees);
    if (done || done.error().code != EPERM) return done;
    // mknod(2) is forbidden if the hook itself runs in a user namespace, as with rootless Podman. Then bind-mount the
    // node's device nodes instead.
    const std::size_t before = warnings_.size();
    // If the bind mounts fail too, report the error of mknod(2), which names the cause.
    const auto bound = prepare(steps, true);
    if (bound && run_file_steps(*bound)) return {};
    warnings_.resize(before);
    return done;
  }

  Result<void> set_memlock(const SetMemlock& step) {
    TRY_VOID(check_alive(container_));
    auto warning = TRY(raise_memlock(container_.init.pid, step.bytes, engine_));
    if (warning) {
      warnings_.push_back(std::move(*warning));
    } else if (!step.note.empty()) {
      warnings_.push_back(step.note);
    }
    return {};
  }

  Result<void> limit(const LimitRdma& step) {
    TRY_VOID(check_alive(container_));
    append(TRY(limit_rdma(container_.init.pid, step.limits)), warnings_);
    // The cgroup was looked up by PID. If the container's process still lives, the cgroup is the container's.
    return check_alive(container_);
  }

  // Mounts the lent libraries. Most images do not need them, so the container also starts without.
  void mount_lent(const Step& step) {
    const auto mounted = change_files({step});
    if (!mounted)
      warnings_.push_back(fmt::format("the node's libraries are not lent: {}", with_remedy(mounted.error())));
  }

  const LiveContainer& container_;
  const Engine engine_;
  std::vector<std::string> warnings_;
};

std::string remedy(Engine engine) {
  return fmt::format("set LimitMEMLOCK=infinity for the engine's service or raise the limit ({})",
                     where_to_set_memlock(engine));
}

}  // namespace

std::optional<MappedRoot> parse_mapped_root(std::string_view uid_map, std::string_view gid_map) {
  const auto uid = parse_map(uid_map);
  const auto gid = parse_map(gid_map);
  if (!uid || !gid) return std::nullopt;
  return MappedRoot{*uid, *gid};
}

Result<LiveContainer> pin_container(const OciState& state, const ContainerSpec& spec) {
  LiveContainer container;
  container.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, state.pid, 0)));
  if (!container.pidfd.ok() && errno == ESRCH) return ended_error(state.pid);
  if (!container.pidfd.ok() && errno != ENOSYS) return sys_error(errno, "cannot open process `{}`", state.pid);
  const auto init = identify(state.pid);
  if (!init) return init.error().code == ESRCH ? ended_error(state.pid) : init.error();
  container.state = state;
  container.init = *init;
  const UniqueFd proc = TRY(open_proc());
  container.mount_namespace = TRY(open_other_namespace(proc.get(), state.pid));
  if (spec.has_userns) container.owner = TRY(read_mapped_root(proc.get(), state.pid));
  container.root_path = spec.root_path.starts_with('/') ? spec.root_path : state.bundle + "/" + spec.root_path;
  container.rootfs = TRY(find_rootfs(container.root_path));
  container.node = read_node_files();
  container.mounts.spec = spec.mounts;
  container.mounts.mountinfo = TRY(read_at(proc.get(), fmt::format("{}/mountinfo", state.pid), kLongestMountinfo));
  // The identity and the files above were read by PID, after the pidfd was opened. A living process keeps its PID, so
  // they belong to the process of the pidfd if it still lives. Without a pidfd, the start time is compared.
  const auto alive = check_alive(container);
  if (!alive) return alive.error().code == ESRCH ? ended_error(state.pid) : alive.error();
  return container;
}

Result<void> check_alive(const LiveContainer& container) {
  const pid_t pid = container.init.pid;
  pollfd ended{container.pidfd.get(), POLLIN, 0};
  const int count = container.pidfd.ok() ? poll(&ended, 1, 0) : 0;
  if (count < 0) return sys_error(errno, "cannot check process `{}`", pid);
  const bool has_ended = container.pidfd.ok() ? count > 0 : TRY(read_presence(container.init)) == Presence::kAbsent;
  if (!has_ended) return {};
  return Error{fmt::format("cannot change the container: its process {} has ended", pid), ESRCH,
               "start the container again"};
}

Result<std::vector<std::string>> run_steps(const LiveContainer& container, const std::vector<Step>& steps,
                                           Engine engine) {
  return StepRun(container, engine).run(steps);
}

Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes, Engine engine) {
  rlimit now{};
  if (prlimit(pid, RLIMIT_MEMLOCK, nullptr, &now) != 0) {
    if (errno != EPERM) return sys_error(errno, "cannot read RLIMIT_MEMLOCK of the process `{}`", pid);
    return std::optional<std::string>(
        fmt::format("cannot read or set RLIMIT_MEMLOCK of the container without CAP_SYS_RESOURCE: {}", remedy(engine)));
  }
  // Limits are never lowered.
  if (now.rlim_cur >= bytes && now.rlim_max >= bytes) return std::optional<std::string>();
  const rlimit wanted{std::max<rlim_t>(now.rlim_cur, bytes), std::max<rlim_t>(now.rlim_max, bytes)};
  if (prlimit(pid, RLIMIT_MEMLOCK, &wanted, nullptr) == 0) return std::optional<std::string>();
  if (errno != EPERM)
    return sys_error(errno, "cannot set RLIMIT_MEMLOCK of the process `{}` to {}", pid, memlock_text(bytes));
  // Without CAP_SYS_RESOURCE a process can raise the soft limit only up to the hard one.
  const rlimit most{std::min<rlim_t>(wanted.rlim_cur, now.rlim_max), now.rlim_max};
  const bool raised = prlimit(pid, RLIMIT_MEMLOCK, &most, nullptr) == 0;
  return std::optional<std::string>(
      fmt::format("cannot raise RLIMIT_MEMLOCK of the container to {} without CAP_SYS_RESOURCE, it is {}: {}",
                  memlock_text(bytes), memlock_text(raised ? most.rlim_cur : now.rlim_cur), remedy(engine)));
}

Result<void> run_in_mount_namespace(int mount_namespace, const std::function<Result<void>()>& function) {
  TRY(run_in_child("the container's mount namespace", [&](ChildFiles&) -> Result<void> {
    if (setns(mount_namespace, CLONE_NEWNS) != 0) {
      Error error = sys_error(errno, "cannot join the container's mount namespace");
      if (error.code == EPERM) error.hint = "use --device or CDI for rootless containers";
      return error;
    }
    umask(0);  // modes of the plan apply unchanged
    return function();
  }));
  return {};
}

Result<std::vector<std::string>> apply_live(const Adjustment& adjustment, const ContainerSpec& spec,
                                            const LiveContainer& container, Engine engine, const std::string& root) {
  auto steps = TRY(live_steps(adjustment, spec, container.state, {root, engine, memlock_of(container.init.pid)}));
  append(TRY(run_steps(container, steps.steps, engine)), steps.warnings);
  return std::move(steps.warnings);
}

}  // namespace hook
