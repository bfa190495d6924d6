// Events of files that wake the device plugin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
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

// The directory with the sockets of the kubelet and of its plugins. A kubelet that starts removes all sockets in it and
// then creates its own.
class KubeletDirectory {
 public:
  // Watches and locks the directory, so that one instance of this plugin uses it at a time. Errors: no such directory;
  // EWOULDBLOCK: another instance has the lock.
  static Result<KubeletDirectory> open(const std::string& path);
  const FileEvents& events() const { return events_; }
  // Returns false if the directory was removed or replaced. The kernel sends no inotify event for a removal, because
  // lock_ keeps the directory's inode open.
  bool is_there() const;

 private:
  std::string path_;
  FileIdentity identity_;
  base::UniqueFd lock_;
  base::UniqueFd inner_lock_;  // invalid unless other users can open the directory
  FileEvents events_;
};

}  // namespace shim
