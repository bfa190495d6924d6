// What only RDMA netlink knows: which netdev is a port's own and in this netns, and whether RDMA devices are shared
// between network namespaces (include/uapi/rdma/rdma_netlink.h, kernel 6.12).
#pragma once

#include <optional>

#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"

namespace fabric::rdma_netlink {

struct Answer {
  rdma_sysfs::PortNetdevs port_netdevs;
  std::optional<NetnsMode> netns_mode;
};

// nullopt when the kernel has no RDMA netlink (none built in, or the socket is refused): sysfs has to do then.
std::optional<Answer> read(bool with_netns_mode);

// Only whether RDMA devices are shared between network namespaces; nullopt as above, or before kernel 5.2.
std::optional<NetnsMode> read_netns_mode();

}  // namespace fabric::rdma_netlink
