// Reads netdevs, addresses and routes of this network namespace with rtnetlink. RDMA netlink adds facts that no other
// interface has: the netdev of each port if it is in this namespace, the RDMA network namespace mode, and the
// privileged-QKEY mode.
// Source: include/uapi/rdma/rdma_netlink.h, Linux 6.12.
#pragma once

#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/netlink.hpp"
#include "base/result.hpp"
#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"

namespace fabric::netlink {

using namespace base::netlink;

// Returns the address of family AF_INET or AF_INET6, nullopt if the number of bytes does not fit the family.
std::optional<Address> to_address(unsigned family, Bytes bytes);
// Returns AF_INET or AF_INET6.
std::uint8_t family_of(const Address& address);
// Returns the 4 bytes of an IPv4 address, or the 16 of an IPv6 address.
Bytes bytes_in_family(const Address& address);

// Calls use(hop, attributes) for each next hop of a route (RTA_MULTIPATH). Ends at a malformed one.
void each_nexthop(Bytes multipath, auto use) {
  while (const auto hop = value_of<rtnexthop>(multipath)) {
    if (hop->rtnh_len < sizeof *hop || hop->rtnh_len > multipath.size()) return;
    use(*hop, multipath.subspan(sizeof *hop, hop->rtnh_len - sizeof *hop));
    multipath = multipath.subspan(std::min<std::size_t>(RTNH_ALIGN(std::size_t{hop->rtnh_len}), multipath.size()));
  }
}

// Returns the netdev of an RTM_NEWLINK message, nullopt for other messages.
std::optional<Netdev> parse_link(const Message& message);
// Adds the address of an RTM_NEWADDR message to its netdev, if that is in the list.
void add_address(std::vector<Netdev>& netdevs, const Message& message);
// Sets the name of each netdev's master, and the list of slaves of each bond.
void fill_masters(std::vector<Netdev>& netdevs);

struct Network {
  std::vector<Netdev> netdevs;  // every netdev of this netns, ascending ifindex
  std::vector<Route> routes;    // unicast: the default routes of the main table; with all_routes, all routes
};

// Reads netdevs, addresses and routes. With all_routes, about 4,096 routes at most are read. Errors: no netlink socket
// (seccomp, gVisor), or a failed dump.
Result<Network> read_network(bool all_routes);
// Reads netdevs and addresses without routes. Errors: those of read_network().
Result<std::vector<Netdev>> read_netdevs();
// Reads netdevs and addresses if this namespace has at most `most` netdevs. Returns nullopt if it has more.
Result<std::optional<std::vector<Netdev>>> read_netdevs(std::size_t most);

// A route without the name of its netdev.
struct FoundRoute {
  Route route;
  int ifindex = 0;
};
// Reads the IPv4 default routes of the main table or, if there is none, the IPv6 default routes. Errors: those of
// read_network().
Result<std::vector<FoundRoute>> read_default_routes();
// Returns the routes with the names of their netdevs. Routes of other netdevs are left out.
std::vector<Route> name_routes(std::vector<FoundRoute> routes, const std::vector<Netdev>& netdevs);

struct RdmaAnswer {
  rdma_sysfs::PortNetdevs port_netdevs;
  std::optional<NetnsMode> netns_mode;
};

// Reads the HCAs and the netdevs of their ports from RDMA netlink. Returns nullopt if the kernel has no RDMA netlink,
// or if the socket or the list of HCAs fails; the caller then uses sysfs.
std::optional<RdmaAnswer> read_rdma(bool with_netns_mode);

// Reads the RDMA network namespace mode only. Returns nullopt without RDMA netlink, or before Linux 5.2.
std::optional<NetnsMode> read_netns_mode();

// Reads `rdma system set privileged-qkey`: true if processes without CAP_NET_RAW may use controlled QKEYs. Returns
// nullopt without RDMA netlink, or before Linux 6.7.
std::optional<bool> read_privileged_qkey();
// Returns the privileged-QKEY setting from an answer to RDMA_NLDEV_CMD_SYS_GET.
std::optional<bool> privileged_qkey_of(const Attributes& answer);

}  // namespace fabric::netlink
