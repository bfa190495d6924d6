// Events of files that wake a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace shim {

// Reports that a file in one of several directories may have changed.
class FileEvents {
 public:
  // Watches the directories. A missing directory is reported when its parent gets it. Returns false if a change can
  // remain unreported: a directory and its parent are missing, or inotify fails.
  bool watch(const std::vector<std::string>& directories);
  int fd() const { return watch_.get(); }  // readable after a change; -1: nothing is watched
  // Reads and discards all pending events. Returns true if there was one.
  bool take() const;

 private:
  base::UniqueFd watch_;
};

// Identity of the file at a path, which differs if the file was replaced: device, inode, ctime. Empty: there is no such
// file, or lstat(2) failed.
using FileIdentity = std::vector<std::int64_t>;
FileIdentity file_identity(const std::string& path);

}  // namespace shim
