// The kubelet's directory of device plugins.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "shim/kubelet/file_events.hpp"

namespace shim {

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
