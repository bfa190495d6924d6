#include "hook/apply/live/pin_container.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/base/process/cgroup.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kLongestMap = std::size_t{64} << 10;  // 340 lines (user_namespaces(7))

Result<UniqueFd> open_proc() {
  UniqueFd proc(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!proc.ok()) return sys_error(errno, "cannot open `/proc`");
  if (!is_on(proc.get(), PROC_SUPER_MAGIC)) {
    return Error{"cannot believe `/proc`: it is not a proc file system", 0, "mount proc at /proc where the hook runs"};
  }
  return proc;
}

Error gone(pid_t pid) {
  return Error{fmt::format("cannot find the process {} of the container: it is gone", pid), ESRCH,
               "start the container again"};
}

Result<UniqueFd> open_namespace(int proc, const std::string& process) {
  const std::string path = process + "/ns/mnt";
  UniqueFd fd(openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) {
    Error error = sys_error(errno, "cannot open `/proc/{}`", path);
    if (error.code == EACCES) error.hint = "rootless containers get device nodes with --device, or by CDI";
    return error;
  }
  if (!is_on(fd.get(), NSFS_MAGIC)) return fabric::make_error("cannot use `/proc/{}`: it is no namespace", path);
  return fd;
}

Result<UniqueFd> open_other_namespace(int proc, pid_t pid) {
  UniqueFd theirs = TRY(open_namespace(proc, std::to_string(pid)));
  const UniqueFd ours = TRY(open_namespace(proc, "self"));
  if (file_id(theirs.get()) == file_id(ours.get())) {
    return Error{fmt::format("process {} shares the node's mount namespace: no container's init", pid), 0,
                 "give the container a mount namespace, or its devices in config.json"};
  }
  return theirs;
}

Result<std::string> read_text(int proc, const std::string& path, std::size_t limit) {
  const UniqueFd fd(openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "cannot open `/proc/{}`", path);
  auto text = fabric::sysfs::read_all(fd.get(), limit);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    return sys_error(failed->code, "cannot read `/proc/{}`", path);
  }
  return std::get<std::string>(std::move(text));
}

Result<MappedRoot> read_mapped_root(int proc, pid_t pid) {
  const std::string uids = TRY(read_text(proc, fmt::format("{}/uid_map", pid), kLongestMap));
  const std::string gids = TRY(read_text(proc, fmt::format("{}/gid_map", pid), kLongestMap));
  const auto owner = parse_mapped_root(uids, gids);
  if (owner) return *owner;
  return Error{
      fmt::format("cannot make device nodes for the process {}: its user namespace maps no uid 0 or gid 0", pid), 0,
      "map the container's root, or give its devices in config.json"};
}

// The outer id for inside id 0.
std::optional<std::uint32_t> parse_map(std::string_view text) {
  for (const std::string_view line : fabric::split(text, '\n')) {
    std::vector<std::uint32_t> numbers;
    for (const std::string_view word : fabric::split(line, ' ')) {
      if (const auto number = fabric::parse_number<std::uint32_t>(word)) numbers.push_back(*number);
    }
    if (numbers.size() == 3 && numbers[0] == 0 && numbers[2] > 0) return numbers[1];
  }
  return std::nullopt;
}

Result<FileId> find_rootfs(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto id = fd.ok() ? file_id(fd.get()) : std::nullopt;
  if (!id) return sys_error(errno, "cannot open the container's root file system `{}`", path);
  return *id;
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
  // Before the pidfd and again at the end: the same start time both times means one process in between.
  const auto init = identify(state.pid);
  if (!init) return init.error().code == ESRCH ? gone(state.pid) : init.error();
  container.state = state;
  container.init = *init;
  container.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, state.pid, 0)));
  if (!container.pidfd.ok() && errno == ESRCH) return gone(state.pid);
  if (!container.pidfd.ok() && errno != ENOSYS) return sys_error(errno, "cannot open process `{}`", state.pid);
  const UniqueFd proc = TRY(open_proc());
  container.mount_namespace = TRY(open_other_namespace(proc.get(), state.pid));
  if (spec.has_userns) container.owner = TRY(read_mapped_root(proc.get(), state.pid));
  container.root_path = spec.root_path.starts_with('/') ? spec.root_path : state.bundle + "/" + spec.root_path;
  container.rootfs = TRY(find_rootfs(container.root_path));
  container.node = read_node_files();
  container.mounts.spec = spec.mounts;
  container.mounts.mountinfo = TRY(read_text(proc.get(), fmt::format("{}/mountinfo", state.pid), kLongestMountinfo));
  // What was read by number was this process's if it still lives.
  if (TRY(look_at(container.init)) == Presence::kGone) return gone(state.pid);
  TRY_VOID(check_alive(container));
  return container;
}

Result<void> check_alive(const LiveContainer& container) {
  const pid_t pid = container.init.pid;
  pollfd ended{container.pidfd.get(), POLLIN, 0};
  const int count = container.pidfd.ok() ? poll(&ended, 1, 0) : 0;
  if (count < 0) return sys_error(errno, "cannot look at process `{}`", pid);
  const bool has_ended = container.pidfd.ok() ? count > 0 : TRY(look_at(container.init)) == Presence::kGone;
  if (!has_ended) return {};
  return Error{fmt::format("cannot change the container: its process {} has ended", pid), ESRCH,
               "start the container again"};
}

}  // namespace hook
