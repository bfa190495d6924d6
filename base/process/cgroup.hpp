// Finds the cgroups that decide which devices a process may open: the cgroup with the `devices` controller of v1, or
// the cgroup with the BPF programs of v2. On hybrid systems the kernel checks both. Also finds the cgroup that limits
// the RDMA objects of the process: the `rdma` controller is in one hierarchy only.
//
// Sources: /proc/PID/cgroup (cgroups(7)), with paths relative to the root of the reader's cgroup namespace, and
// /proc/self/mountinfo (proc(5)).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/proc.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Limit for reading /proc/PID/mountinfo, in bytes. By default (sysctl fs.mount-max), a mount namespace has at most
// 100,000 mounts.
inline constexpr std::size_t kLongestMountinfo = std::size_t{64} << 20;

enum class CgroupKind { kV1Devices, kV1Rdma, kV2 };

// A mount of a cgroup hierarchy for devices or RDMA.
struct CgroupMount {
  CgroupKind kind = CgroupKind::kV2;
  std::string root;   // the group at the mount point: "/" except in nested containers
  std::string point;  // mount point
  friend bool operator==(const CgroupMount&, const CgroupMount&) = default;
};
// Parses mountinfo. Returns the cgroup mounts in the order of the lines. Skips other mounts and malformed lines.
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

// Returns the path of a group below a mount: "/" or "/a/b"; nullopt: the mount does not show the group.
std::optional<std::string> path_below(const CgroupMount& mount, std::string_view cgroup_path);

// A group, in the reader's mounts.
struct Cgroup {
  CgroupKind kind = CgroupKind::kV2;
  std::string mount_point;
  std::string path;  // the group's path below the mount: "/" or "/a/b"
  std::string directory() const { return path == "/" ? mount_point : mount_point + path; }
  friend bool operator==(const Cgroup&, const Cgroup&) = default;
};

// Returns the group, then its parents up to the root of the mount.
std::vector<Cgroup> with_ancestors(const Cgroup& cgroup);
// Returns true if systemd made the group: it or its parent is a scope or a service. crun puts containers into
// UNIT.scope/container.
bool is_systemds(const Cgroup& cgroup);
// Returns true if the group itself is a scope or a service.
bool is_unit(const Cgroup& cgroup);
// Returns true if the parent of the group is a scope of systemd: such a scope is made for one container only.
bool is_inside_scope(const Cgroup& cgroup);

// Returns the groups that decide which devices a live process may open, v1 first; empty: no such hierarchy is mounted
// here. Tries the usual mount points first, and trusts a group there if it lists the process. So the cost does not grow
// with the mounts of the node. Checks the file system of each directory (fstatfs). Errors: /proc is not procfs; a
// hierarchy is mounted but does not show the process's group.
Result<std::vector<Cgroup>> device_cgroups(pid_t pid);

// A group with its open directory (open_cgroup()).
struct OpenCgroup {
  Cgroup group;
  UniqueFd directory;
};
// The same groups, with their directories.
Result<std::vector<OpenCgroup>> open_device_cgroups(pid_t pid);

// Returns the group of a process in the hierarchy with the `rdma` controller; nullopt: it is not mounted here. The file
// rdma.max may be missing in the group's directory. Errors: those of device_cgroups().
Result<std::optional<Cgroup>> rdma_cgroup(pid_t pid);

// Opens the directory of a group for reading. Errors: it cannot be opened, or is not on a cgroup file system.
Result<UniqueFd> open_cgroup(const Cgroup& cgroup);

}  // namespace base
