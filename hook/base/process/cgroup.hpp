// Which control groups decide about the devices of a process: the `devices` controller of v1, the BPF programs of v2,
// or on hybrid systems both, because the kernel asks both. And which one limits its RDMA objects: the `rdma` controller
// is in one hierarchy only.
//
// Sources: /proc/PID/cgroup (cgroups(7)), whose paths are relative to the root of the reader's cgroup namespace, and
// /proc/self/mountinfo (proc(5)).
#pragma once

#include <sys/types.h>
#include <sys/vfs.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// /proc/PID/mountinfo: fs.mount-max is 100000.
inline constexpr std::size_t kLongestMountinfo = std::size_t{64} << 20;

// Whether a descriptor (O_PATH will do) is on a file system of that kind, as in linux/magic.h: what lies at /proc or at
// a cgroup's path is believed only if it is on procfs or cgroupfs.
inline bool is_on(int fd, long magic) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == magic;
}

enum class CgroupKind { kV1Devices, kV1Rdma, kV2 };

// A process's place in the hierarchies that matter here: "/docker/ID"; nullopt: it is in none of that kind.
struct CgroupPaths {
  std::optional<std::string> v1_devices;
  std::optional<std::string> v2;
  std::optional<std::string> v1_rdma = {};
  friend bool operator==(const CgroupPaths&, const CgroupPaths&) = default;
};
// Of the text of /proc/PID/cgroup. Malformed lines are skipped. A path with a ".." component, as of a process outside
// the reader's cgroup namespace, is kept.
CgroupPaths parse_proc_cgroup(std::string_view text);

// A mount of such a hierarchy.
struct CgroupMount {
  CgroupKind kind = CgroupKind::kV2;
  std::string root;   // which of its groups is mounted: "/" but for nested containers
  std::string point;  // where
  friend bool operator==(const CgroupMount&, const CgroupMount&) = default;
};
// Of the text of mountinfo, in its order; other mounts and malformed lines are skipped.
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

// The path of a group below a mount: "/" or "/a/b"; nullopt when the mount does not show it.
std::optional<std::string> path_below(const CgroupMount& mount, std::string_view cgroup_path);

// One group, as the reader's mounts show it.
struct Cgroup {
  CgroupKind kind = CgroupKind::kV2;
  std::string mount_point;
  std::string path;  // below the mount: "/" or "/a/b"
  std::string directory() const { return path == "/" ? mount_point : mount_point + path; }
  friend bool operator==(const Cgroup&, const Cgroup&) = default;
};

// Itself, then its parents up to the root of the mount.
std::vector<Cgroup> with_ancestors(const Cgroup& cgroup);
// systemd made it: it, or the group around it (crun puts containers into UNIT.scope/container), is a scope or a
// service.
bool is_systemds(const Cgroup& cgroup);
// It is a scope or service itself.
bool is_unit(const Cgroup& cgroup);
// Its parent is a unit of systemd, made for this container alone.
bool is_inside_scope(const Cgroup& cgroup);

// The groups of a live process that decide, v1 first; empty: none is mounted here. The usual mount points are tried
// first, and believed when the group there lists the process, so that the cost does not grow with the number of mounts
// on the node. Every directory's file system is checked (fstatfs). Errors: /proc is no procfs; a hierarchy is mounted
// but does not show the process's group.
Result<std::vector<Cgroup>> device_cgroups(pid_t pid);

// The group whose rdma.max limits the process; nullopt: none is mounted here. Its directory need not have that file.
// Errors: as device_cgroups().
Result<std::optional<Cgroup>> rdma_cgroup(pid_t pid);

// Its directory, open for reading, on a file system that really is a cgroup's.
Result<fabric::UniqueFd> open_cgroup(const Cgroup& cgroup);

// The text of an open file of /proc or of a cgroup. path: for messages. Errors: it is longer than limit, or cannot be
// read.
Result<std::string> read_text(int fd, std::size_t limit, const std::string& path);

}  // namespace hook
