// Paths below the root of a container: nothing there is followed, whatever the image put there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fabric/unique_fd.hpp"

namespace hook {

struct FileId {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};
// nullopt with errno set.
std::optional<FileId> file_id(int fd);

enum class Resolver { kOpenat2, kWalk };  // kOpenat2: with kWalk as fallback

// A path of the container ("/dev/infiniband"), absolute, without "." and ".." components (EINVAL); flags as for
// open(2). Empty with errno set when it cannot be opened: ELOOP where any component, the last one included, is a
// symlink.
fabric::UniqueFd open_in_root(int root, const std::string& path, int flags, Resolver resolver = Resolver::kOpenat2);

}  // namespace hook
