#include <fcntl.h>
#include <linux/magic.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/apply/live/cgroup.hpp"
#include "hook/apply/live/file_system.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

// A node with a thousand containers has some ten thousand mounts.
constexpr std::size_t kLongestProcCgroup = std::size_t{1} << 20;
constexpr std::size_t kLongestProcs = std::size_t{1} << 20;

long magic_of(CgroupKind kind) {
  return kind == CgroupKind::kV2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC;
}

// A file of /proc, and of a real one.
Result<std::string> read_proc(const std::string& path, std::size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}`", path);
  if (!is_on(fd.get(), PROC_SUPER_MAGIC)) {
    return fabric::Error{fmt::format("cannot believe `{}`: it is not on a proc file system", path), 0,
                         "mount proc at /proc where the hook runs"};
  }
  auto text = fabric::sysfs::read_all(fd.get(), limit);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    return sys_error(failed->code, "cannot read `{}`", path);
  }
  return std::get<std::string>(std::move(text));
}

bool lists_process(const Cgroup& cgroup, pid_t pid) {
  const auto directory = open_cgroup(cgroup);
  if (!directory) return false;
  const UniqueFd fd(openat(directory->get(), "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return false;
  const auto text = fabric::sysfs::read_all(fd.get(), kLongestProcs);
  const auto* processes = std::get_if<std::string>(&text);
  if (!processes) return false;
  const std::string wanted = std::to_string(pid);
  for (const std::string_view line : fabric::split(*processes, '\n')) {
    if (line == wanted) return true;
  }
  return false;
}

// The usual places, in the order of their likelihood.
std::optional<Cgroup> find_usual(CgroupKind kind, const std::string& path, pid_t pid) {
  static constexpr const char* kV2Points[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  static constexpr const char* kV1Points[] = {"/sys/fs/cgroup/devices"};
  const std::span<const char* const> points =
      kind == CgroupKind::kV2 ? std::span<const char* const>(kV2Points) : std::span<const char* const>(kV1Points);
  for (const char* point : points) {
    Cgroup cgroup{kind, point, path};
    if (lists_process(cgroup, pid)) return cgroup;
  }
  return std::nullopt;
}

Result<std::optional<Cgroup>> find_mounted(CgroupKind kind, const std::string& path) {
  const std::string mountinfo = TRY(read_proc("/proc/self/mountinfo", kLongestMountinfo));
  bool mounted = false;
  for (const CgroupMount& mount : parse_cgroup_mounts(mountinfo)) {
    if (mount.kind != kind) continue;
    mounted = true;
    const auto below = path_below(mount, path);
    if (!below) continue;
    Cgroup cgroup{kind, mount.point, *below};
    if (open_cgroup(cgroup)) return std::optional<Cgroup>(std::move(cgroup));
  }
  if (!mounted) return std::optional<Cgroup>();
  return fabric::Error{fmt::format("cannot find the container's cgroup `{}` below any {} mount", path,
                                   kind == CgroupKind::kV2 ? "cgroup2" : "cgroup (devices)"),
                       ENOENT, "run the hook in the cgroup namespace and the mount namespace of the node"};
}

}  // namespace

Result<UniqueFd> open_cgroup(const Cgroup& cgroup) {
  const std::string directory = cgroup.directory();
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open the cgroup `{}`", directory);
  if (!is_on(fd.get(), magic_of(cgroup.kind))) {
    return fabric::make_error("cannot use the cgroup `{}`: it is not on a cgroup file system", directory);
  }
  return fd;
}

Result<std::vector<Cgroup>> device_cgroups(pid_t pid) {
  const std::string text = TRY(read_proc(fmt::format("/proc/{}/cgroup", pid), kLongestProcCgroup));
  const CgroupPaths paths = parse_proc_cgroup(text);
  std::vector<Cgroup> groups;
  const auto add = [&](CgroupKind kind, const std::optional<std::string>& path) -> Result<void> {
    if (!path) return {};
    auto found = find_usual(kind, *path, pid);
    if (!found) found = TRY(find_mounted(kind, *path));
    if (found) groups.push_back(std::move(*found));
    return {};
  };
  TRY_VOID(add(CgroupKind::kV1Devices, paths.v1_devices));
  TRY_VOID(add(CgroupKind::kV2, paths.v2));
  return groups;
}

}  // namespace hook
