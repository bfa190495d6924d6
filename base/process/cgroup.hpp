// Finds the cgroups that decide which devices a process may open: the cgroup with the `devices` controller of v1, or
// the cgroup with the BPF programs of v2. On hybrid systems the kernel checks both. Also finds the cgroup that limits
// the RDMA objects of the process: the `rdma` controller is in one hierarchy only.
//
// Sources: /proc/PID/cgroup (cgroups(7)), with paths relative to the root of the reader's cgroup namespace, and
// /proc/self/mountinfo (proc(5)).
#pragma once

#include <sys/types.h>
#include <sys/vfs.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Limit for reading /proc/PID/mountinfo, in bytes. By default (sysctl fs.mount-max), a mount namespace has at most
// 100,000 mounts.
inline constexpr std::size_t kLongestMountinfo = std::size_t{64} << 20;

// Returns true if a descriptor, also one with O_PATH, is on a file system of this kind (linux/magic.h). Files at /proc
// or at a cgroup's path are trusted only if they are on procfs or cgroupfs.
inline bool is_on(int fd, long magic) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == magic;
}

enum class CgroupKind { kV1Devices, kV1Rdma, kV2 };

// The paths of a process in the cgroup hierarchies for devices and RDMA, such as "/docker/ID"; nullopt: the process is
// in no such hierarchy.
struct CgroupPaths {
  std::optional<std::string> v1_devices;
  std::optional<std::string> v2;
  std::optional<std::string> v1_rdma = {};
  friend bool operator==(const CgroupPaths&, const CgroupPaths&) = default;
};
// Parses /proc/PID/cgroup. Skips malformed lines. Keeps a path with "..", which the kernel shows for a process outside
// the reader's cgroup namespace.
CgroupPaths parse_proc_cgroup(std::string_view text);

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

// Returns the group of a process in the hierarchy with the `rdma` controller; nullopt: it is not mounted here. The file
// rdma.max may be missing in the group's directory. Errors: those of device_cgroups().
Result<std::optional<Cgroup>> rdma_cgroup(pid_t pid);

// Opens the directory of a group for reading. Errors: it cannot be opened, or is not on a cgroup file system.
Result<UniqueFd> open_cgroup(const Cgroup& cgroup);

// Reads an open file of /proc or of a cgroup. path: for messages. Errors: it is longer than limit, or cannot be read.
Result<std::string> read_text(int fd, std::size_t limit, const std::string& path);

}  // namespace base
