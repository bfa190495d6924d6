// Events that wake the device plugin: of the kernel, and of files in the kubelet's directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "shim/result.hpp"

namespace shim {

// Reports that HCAs, their netdevs or addresses may have changed, by rtnetlink, RDMA netlink (Linux 6.12 and later) and
// uevents. After an event the plugin reads the whole node again. It does not rely on the content of events, because the
// kernel drops events if there are many.
class KernelEvents {
 public:
  // Opens the sockets that the kernel offers. If it offers none, the plugin still finds all changes by polling.
  static KernelEvents open();
  // Sockets that are readable when there are events.
  const std::vector<fabric::UniqueFd>& sockets() const { return sockets_; }
  // Reads all pending events. Returns true if one of them may be about an HCA, or if events were lost.
  bool take() const;

 private:
  std::vector<fabric::UniqueFd> sockets_;
  int uevents_ = -1;  // descriptor of the socket for uevents, which must be filtered; -1: none
};

// Identity of the file at a path, which differs if the file was replaced: device, inode, ctime. Empty: no such file, or
// lstat(2) failed.
using FileIdentity = std::vector<std::int64_t>;
FileIdentity file_identity(const std::string& path);

// The directory with the sockets of the kubelet and of its plugins. A kubelet that starts removes all sockets in it and
// then creates its own.
class KubeletDirectory {
 public:
  // Watches and locks the directory, so that one instance of this plugin uses it at a time. Errors: no such directory;
  // EWOULDBLOCK: another instance has the lock.
  static Result<KubeletDirectory> open(const std::string& path);
  // Readable when a file was created or removed.
  int fd() const { return watch_.get(); }
  // Reads and discards all pending events.
  void take() const;
  // Returns false if the directory was removed or replaced. The kernel sends no inotify event for a removal, because
  // lock_ keeps the directory's inode open.
  bool is_there() const;

 private:
  std::string path_;
  FileIdentity identity_;
  fabric::UniqueFd lock_;
  fabric::UniqueFd watch_;
};

}  // namespace shim
