// What kind of file system something is on: /proc and cgroup directories are believed only where they are ones.
#pragma once

#include <sys/vfs.h>

#include <cstddef>

namespace hook {

// /proc/PID/mountinfo: fs.mount-max is 100000.
inline constexpr std::size_t kLongestMountinfo = std::size_t{64} << 20;

// magic: as in linux/magic.h. An open descriptor, O_PATH will do.
inline bool is_on(int fd, long magic) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == magic;
}

}  // namespace hook
