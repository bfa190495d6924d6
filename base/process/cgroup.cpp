#include "base/process/cgroup.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/process/mountinfo.hpp"
#include "base/text.hpp"

namespace base {
namespace {

bool lists(std::string_view comma_separated, std::string_view word) {
  const auto words = split(comma_separated, ',');
  return std::ranges::find(words, word) != words.end();
}

bool names_unit(std::string_view path) {
  const std::string_view name = last_component(path);
  return name.ends_with(".scope") || name.ends_with(".service");
}

const char* name_of(CgroupKind kind) {
  if (kind == CgroupKind::kV2) return "cgroup2";
  return kind == CgroupKind::kV1Rdma ? "cgroup (rdma)" : "cgroup (devices)";
}

// Limit in bytes: cgroup.procs has one line for each process.
constexpr std::size_t kLongestProcs = std::size_t{1} << 20;

long magic_of(CgroupKind kind) {
  return kind == CgroupKind::kV2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC;
}

bool lists_process(int directory, pid_t pid) {
  const UniqueFd fd(openat(directory, "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return false;
  const auto text = read_all(fd.get(), kLongestProcs);
  const auto* processes = std::get_if<std::string>(&text);
  if (!processes) return false;
  const std::string wanted = std::to_string(pid);
  for (const std::string_view line : split(*processes, '\n'))
    if (line == wanted) return true;
  return false;
}

// Tries the usual mount points, the likely ones first. The path may be relative to the root of another cgroup namespace
// and denote a wrong group here. A group that lists the process is the right one. hybrid: the process has a group of
// v1, so v2 is mounted below the directory of the v1 hierarchies, if at all.
std::optional<OpenCgroup> find_usual(CgroupKind kind, const std::string& path, pid_t pid, bool hybrid) {
  constexpr const char* kWhole = "/sys/fs/cgroup";
  constexpr const char* kUnified = "/sys/fs/cgroup/unified";
  std::vector<const char*> points{"/sys/fs/cgroup/devices"};
  if (kind == CgroupKind::kV1Rdma) points = {"/sys/fs/cgroup/rdma"};
  if (kind == CgroupKind::kV2) points = hybrid ? std::vector{kUnified, kWhole} : std::vector{kWhole, kUnified};
  for (const char* const point : points) {
    Cgroup cgroup{kind, point, path};
    auto directory = open_cgroup(cgroup);
    if (directory && lists_process(directory->get(), pid)) return OpenCgroup{std::move(cgroup), std::move(*directory)};
  }
  return std::nullopt;
}

Result<std::optional<OpenCgroup>> find_mounted(CgroupKind kind, const std::string& path) {
  const std::string mountinfo = TRY(read_proc("/proc/self/mountinfo", kLongestMountinfo));
  bool mounted = false;
  for (const CgroupMount& mount : parse_cgroup_mounts(mountinfo)) {
    if (mount.kind != kind) continue;
    mounted = true;
    const auto below = path_below(mount, path);
    if (!below) continue;
    Cgroup cgroup{kind, mount.point, *below};
    if (auto directory = open_cgroup(cgroup))
      return std::optional(OpenCgroup{std::move(cgroup), std::move(*directory)});
  }
  if (!mounted) return std::optional<OpenCgroup>();
  return Error{fmt::format("cannot find the container's cgroup `{}` below any {} mount", path, name_of(kind)), ENOENT,
               "run the hook in the cgroup namespace and the mount namespace of the node"};
}

Result<CgroupPaths> paths_of(pid_t pid) {
  return parse_proc_cgroup(TRY(read_proc_cgroup(pid)));
}

// Returns nullopt if the process is in no group of this kind, or no hierarchy of this kind is mounted.
Result<std::optional<OpenCgroup>> find_group(CgroupKind kind, const CgroupPaths& paths, pid_t pid) {
  const auto& path = kind == CgroupKind::kV2          ? paths.v2
                     : kind == CgroupKind::kV1Devices ? paths.v1_devices
                                                      : paths.v1_rdma;
  if (!path) return std::optional<OpenCgroup>();
  auto found = find_usual(kind, *path, pid, paths.v1_devices || paths.v1_rdma);
  return found ? std::move(found) : find_mounted(kind, *path);
}

}  // namespace

std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto mount = parse_mount_line(line);
    if (!mount) continue;
    const auto add = [&](CgroupKind kind) {
      mounts.push_back({kind, unescape_mount(mount->root), unescape_mount(mount->point)});
    };
    if (mount->type == "cgroup2") add(CgroupKind::kV2);
    if (mount->type != "cgroup") continue;
    if (lists(mount->super_options, "devices")) add(CgroupKind::kV1Devices);
    if (lists(mount->super_options, "rdma")) add(CgroupKind::kV1Rdma);
  }
  return mounts;
}

std::optional<std::string> path_below(const CgroupMount& mount, std::string_view cgroup_path) {
  if (mount.root == "/") {
    // The group is above the root of the reader's cgroup namespace, so no mount shows it.
    if (cgroup_path == "/.." || cgroup_path.starts_with("/../")) return std::nullopt;
    return std::string(cgroup_path);
  }
  if (!cgroup_path.starts_with(mount.root)) return std::nullopt;
  const std::string_view rest = cgroup_path.substr(mount.root.size());
  if (rest.empty()) return "/";
  if (!rest.starts_with('/') || rest == "/.." || rest.starts_with("/../")) return std::nullopt;
  return std::string(rest);
}

std::vector<Cgroup> with_ancestors(const Cgroup& cgroup) {
  std::vector<Cgroup> groups{cgroup};
  while (groups.back().path != "/") {
    Cgroup parent = groups.back();
    parent.path = parent_of(groups.back().path);
    groups.push_back(std::move(parent));
  }
  return groups;
}

bool is_systemds(const Cgroup& cgroup) {
  return names_unit(cgroup.path) || names_unit(parent_of(cgroup.path));
}

bool is_unit(const Cgroup& cgroup) {
  return names_unit(cgroup.path);
}

bool is_inside_scope(const Cgroup& cgroup) {
  return last_component(parent_of(cgroup.path)).ends_with(".scope");
}

Result<UniqueFd> open_cgroup(const Cgroup& cgroup) {
  const std::string directory = cgroup.directory();
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open the cgroup `{}`", directory);
  if (!is_on(fd.get(), magic_of(cgroup.kind)))
    return make_error("cannot use the cgroup `{}`: it is not on a cgroup file system", directory);
  return fd;
}

Result<std::vector<OpenCgroup>> open_device_cgroups(pid_t pid) {
  const CgroupPaths paths = TRY(paths_of(pid));
  std::vector<OpenCgroup> groups;
  for (const CgroupKind kind : {CgroupKind::kV1Devices, CgroupKind::kV2}) {
    auto found = TRY(find_group(kind, paths, pid));
    if (found) groups.push_back(std::move(*found));
  }
  return groups;
}

Result<std::vector<Cgroup>> device_cgroups(pid_t pid) {
  std::vector<Cgroup> groups;
  for (OpenCgroup& open : TRY(open_device_cgroups(pid)))
    groups.push_back(std::move(open.group));
  return groups;
}

Result<std::optional<Cgroup>> rdma_cgroup(pid_t pid) {
  const CgroupPaths paths = TRY(paths_of(pid));
  auto found = TRY(find_group(paths.v1_rdma ? CgroupKind::kV1Rdma : CgroupKind::kV2, paths, pid));
  return found ? std::optional(std::move(found->group)) : std::nullopt;
}

}  // namespace base
