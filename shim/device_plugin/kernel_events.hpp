// That something about HCAs, their netdevs or addresses has changed, as the kernel says it: rtnetlink, RDMA netlink
// (Linux 6.12 and later) and uevents. What has changed is read anew: events are lost where there are many.
#pragma once

#include <vector>

#include "fabric/unique_fd.hpp"

namespace shim {

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
};

}  // namespace shim
