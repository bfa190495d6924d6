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
// uevents. The content of events is not used, because the kernel drops events if there are many: the node is read
// again.
class KernelEvents {
 public:
  // Opens the sockets that the kernel offers. Without any, polling still finds all changes.
  static KernelEvents open();
  // Readable when there are events.
  const std::vector<fabric::UniqueFd>& sockets() const { return sockets_; }
  // Reads all pending events. Returns true if one of them matters.
  bool take() const;

 private:
  std::vector<fabric::UniqueFd> sockets_;
  int uevents_ = -1;  // of sockets_: the one with events that may not matter
};

// Identifies the file that has a name: device, inode, time of the last change. Empty: no such file, or stat(2) failed.
using FileIdentity = std::vector<std::int64_t>;
FileIdentity file_identity(const std::string& path);

// The directory of the sockets of the kubelet and its plugins. A kubelet that starts removes all sockets in it and
// creates its own again.
class KubeletDirectory {
 public:
  // Watches and locks the directory, so that one instance of this plugin uses it at a time. Errors: no such directory;
  // EWOULDBLOCK: another instance has the lock.
  static Result<KubeletDirectory> open(const std::string& path);
  // Readable when a file was created or removed.
  int fd() const { return watch_.get(); }
  // Reads and discards all pending events.
  void take() const;
  // Returns false if the directory was removed or replaced. The kernel sends no event for this, because the open
  // descriptor of the lock keeps the inode.
  bool is_there() const;

 private:
  std::string path_;
  FileIdentity identity_;
  fabric::UniqueFd lock_;
  fabric::UniqueFd watch_;
};

}  // namespace shim
