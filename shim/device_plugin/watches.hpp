// What wakes the device plugin: events of the kernel, and files of the kubelet's directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "shim/result.hpp"

namespace shim {

// That something about HCAs, their netdevs or addresses has changed, as the kernel says it: rtnetlink, RDMA netlink
// (Linux 6.12 and later) and uevents. What has changed is read anew: events are lost where there are many.
class KernelEvents {
 public:
  // Those that can be had; none: what polls sees it all the same.
  static KernelEvents open();
  // Readable: there are some.
  const std::vector<fabric::UniqueFd>& sockets() const { return sockets_; }
  // Takes all that are there; whether one of them matters.
  bool take() const;

 private:
  std::vector<fabric::UniqueFd> sockets_;
  int uevents_ = -1;  // that of sockets_ whose messages do not all matter
};

// Which file has a name now: device, inode, time of the last change. Empty: none, or it cannot be seen.
using FileIdentity = std::vector<std::int64_t>;
FileIdentity file_identity(const std::string& path);

// The directory in which the kubelet and its plugins have their sockets. A kubelet that starts removes the sockets that
// lie there and makes its own anew.
class KubeletDirectory {
 public:
  // Watched and locked: one plugin of ours at a time. Errors: it is not there; EWOULDBLOCK, another one has it.
  static Result<KubeletDirectory> open(const std::string& path);
  // Readable: a file came or went.
  int fd() const { return watch_.get(); }
  // Takes what is there to be read.
  void take() const;
  // False: the directory itself is gone, or another one has its name. No event says so while the lock keeps it.
  bool is_there() const;

 private:
  std::string path_;
  FileIdentity identity_;
  fabric::UniqueFd lock_;
  fabric::UniqueFd watch_;
};

}  // namespace shim
