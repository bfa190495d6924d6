// Netdevs, addresses and routes of this network namespace by rtnetlink, and what only RDMA netlink knows: which netdev
// is a port's own and in this netns, and whether RDMA devices are shared between network namespaces
// (include/uapi/rdma/rdma_netlink.h, kernel 6.12).
#pragma once

#include <optional>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/result.hpp"

namespace fabric::netlink {

class Attributes;

struct Network {
  std::vector<Netdev> netdevs;  // every netdev of this netns, ascending ifindex
  std::vector<Route> routes;    // default routes of the main table; with all_routes every route of every table
};

// Errors: no netlink socket (seccomp, gVisor), a dump that failed.
Result<Network> read_network(bool all_routes);
// The same without routes.
Result<std::vector<Netdev>> read_netdevs();

struct RdmaAnswer {
  rdma_sysfs::PortNetdevs port_netdevs;
  std::optional<NetnsMode> netns_mode;
};

// nullopt when the kernel has no RDMA netlink (none built in, or the socket is refused): sysfs has to do then.
std::optional<RdmaAnswer> read_rdma(bool with_netns_mode);

// Only whether RDMA devices are shared between network namespaces; nullopt as above, or before kernel 5.2.
std::optional<NetnsMode> read_netns_mode();

// Whether processes without CAP_NET_RAW may use controlled QKEYs (`rdma system set privileged-qkey`). nullopt as above,
// or before kernel 6.7.
std::optional<bool> read_privileged_qkey();
// The same of an answer to RDMA_NLDEV_CMD_SYS_GET.
std::optional<bool> privileged_qkey_of(const Attributes& answer);

}  // namespace fabric::netlink
