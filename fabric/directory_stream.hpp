// The names in an open directory, whose descriptor stays with its owner.
#pragma once

#include <dirent.h>
#include <fcntl.h>

#include <memory>

#include "fabric/unique_fd.hpp"

namespace fabric {

struct CloseDirectoryStream {
  void operator()(DIR* stream) const { closedir(stream); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectoryStream>;

// From the first entry, by a description of its own: dup(2) would share the position. Null and errno when it fails.
inline DirectoryStream open_directory_stream(int directory) {
  UniqueFd copy(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DirectoryStream stream(copy.ok() ? ::fdopendir(copy.get()) : nullptr);
  if (stream) (void)copy.release();
  return stream;
}

}  // namespace fabric
