// Reads the files of /proc that several programs need.
#pragma once

#include <sys/types.h>
#include <sys/vfs.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace base {

// Returns true if a descriptor, also one with O_PATH, is on a file system of this kind (linux/magic.h). Files at /proc
// or at a cgroup's path are trusted only if they are on procfs or cgroupfs.
inline bool is_on(int fd, long magic) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == magic;
}

// Reads an open file of /proc or of a cgroup. path: for messages. Errors: it is longer than limit, or cannot be read.
Result<std::string> read_text(int fd, std::size_t limit, const std::string& path);
// Reads a file of /proc by its path. Errors: those of read_text(); a path below /proc leads to another file system.
Result<std::string> read_proc(const std::string& path, std::size_t limit);

// Reads the cgroups of a process (cgroups(7)). proc: where procfs is mounted; a container's /proc below another root
// need not be procfs. process: a PID or "self". Errors: those of read_proc(); ENOENT or ESRCH, the process has ended.
Result<std::string> read_proc_cgroup(const std::string& proc, const std::string& process);
inline Result<std::string> read_proc_cgroup(pid_t pid) {
  return read_proc_cgroup("/proc", std::to_string(pid));
}

// The paths of a process in the cgroup hierarchies for devices and RDMA, such as "/docker/ID"; nullopt: the process is
// in no such hierarchy.
struct CgroupPaths {
  std::optional<std::string> v1_devices;
  std::optional<std::string> v2;
  std::optional<std::string> v1_rdma = {};
  friend bool operator==(const CgroupPaths&, const CgroupPaths&) = default;
};
// Parses the text of read_proc_cgroup(). Skips malformed lines. Keeps a path with "..", which the kernel shows for a
// process outside the reader's cgroup namespace.
CgroupPaths parse_proc_cgroup(std::string_view text);

// Returns the release of the kernel, such as "6.1.0-18-amd64". root: prefix of /proc.
Attr<std::string> read_kernel_release(const std::string& root);
// Returns the number of this boot, a UUID.
Attr<std::string> read_boot_id();

}  // namespace base
