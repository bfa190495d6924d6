// From the plan's netdevs to rails: what each becomes inside, and what may not leave the node.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// What of the node's network decides whether a netdev may leave it.
struct NodeNetwork {
  std::vector<fabric::Netdev> netdevs;              // of the node's namespace, with their addresses
  std::vector<fabric::Route> routes;                // all tables
  std::map<fabric::Address, std::string> services;  // addresses in use by "sshd", "kubelet": who reaches the node by it
};

// Local addresses that sshd (TCP port 22) and kubelet (10250, and its connection to the API server's 6443) have bound
// or are connected by, of the texts of /proc/net/tcp and tcp6; wildcards and loopback are left out. Pure.
std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6);

// Reads netdevs, addresses and default routes by netlink; all netdevs of default routes over several, /proc/net/tcp and
// tcp6 (the first 4 MiB of each) only when `for_moves`. Errors: netlink or a file that cannot be read.
fabric::Result<NodeNetwork> read_node_network(bool for_moves);

// Pure, and addresses are still missing: they are taken when the grant is booked. In the order of plan.netdevs; the
// n-th of them, from 0, gets table first_table + n. Errors are refusals with the remedy:
// - to be moved: a netdev (or what is stacked on it) with the node's default route or an address by which kubelet or
//   sshd is reached (unless take_node_netdevs), a bond or bridge, one netdev twice;
// - anything enslaved;
// - children: while the RDMA subsystem is exclusive (the HCA would not be visible inside), macvlan or ipvlan over
// IPoIB,
//   ipoib over Ethernet, an MTU above the parent's, a rail that none of the network's ranges is for;
// - VF attributes for what is no VF or no move, of the other link layer, or one MAC address or GUID twice;
// - a table that is the kernel's own, or twice;
// - an HCA or netdev that is gone.
fabric::Result<std::vector<Rail>> plan_rails(const Plan& plan, const Config& config, const fabric::Inventory& inventory,
                                             const NodeNetwork& node);

}  // namespace hook
