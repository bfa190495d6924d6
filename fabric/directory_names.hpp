// The names in an open directory. readdir(3) would need a description and a stream of its own: five more system calls,
// for directories of one or two entries of which a start reads dozens.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstddef>
#include <string_view>

namespace fabric {

// Calls use(name) with each but "." and "..", from the first, until it returns false. Moves the descriptor's position.
// False, and errno: the directory cannot be read.
template <typename Use>
bool each_name(int directory, Use use) {
  if (::lseek(directory, 0, SEEK_SET) != 0) return false;
  alignas(dirent64) char buffer[8192];
  for (;;) {
    const ssize_t count = ::getdents64(directory, buffer, sizeof buffer);
    if (count <= 0) return count == 0;
    for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const std::string_view name(entry->d_name);
      if (name != "." && name != ".." && !use(name)) return true;
    }
  }
}

}  // namespace fabric
