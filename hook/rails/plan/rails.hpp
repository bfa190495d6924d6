// From the plan's netdevs to rails: what each becomes inside, and what may not leave the node.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// What of the node's network decides whether a netdev may leave it.
struct NodeNetwork {
  std::vector<fabric::Netdev> netdevs;              // of the node's namespace, with their addresses
  std::vector<fabric::Route> routes;                // all tables
  std::map<fabric::Address, std::string> services;  // address to "sshd" or "kubelet", which reaches the node by it
};

// Local addresses that sshd (TCP port 22) and kubelet (10250, and its connection to the API server's 6443) have bound
// or are connected by, of the texts of /proc/net/tcp and tcp6; wildcards and loopback are left out. Pure.
std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6);

// Reads netdevs, addresses and default routes by netlink; all netdevs of default routes over several, /proc/net/tcp and
// tcp6 (the first 4 MiB of each) only when `for_moves`. Errors: netlink or a file that cannot be read.
Result<NodeNetwork> read_node_network(bool for_moves);

// What is configured on a rail once its netdev is inside: addresses, its own routing table, the rule that leads there.
struct RailConfig {
  std::vector<NetRecord> addresses;
  // In the order in which they can be made. With a table of its own the rail leaves the main table alone: connected
  // route, default route by the gateway, and `from ADDRESS lookup TABLE`.
  std::vector<NetRecord> routes;
};

// Pure. ifindex: inside. carried: what its netdev had on the node, when that moved and has no addresses of config.json:
// put there as it was, and rules for its own table come on top.
RailConfig configure_rail(const Rail& rail, int ifindex, unsigned rule_priority, const std::vector<NetRecord>& carried);

// The address whose GID NCCL is to use: IPv4 before IPv6, never fe80::/10; nullopt: none.
std::optional<fabric::Address> gid_address(const RailConfig& config);

// Of these records the addresses beside those that the kernel gives every netdev.
std::vector<RailAddress> addresses_in(const std::vector<NetRecord>& records);

// rails: without such addresses. Over InfiniBand they need none.
void warn_of_no_address(const std::vector<const Rail*>& rails, const fabric::Inventory& inventory,
                        std::vector<std::string>& warnings);

// Pure, and addresses are still missing: they are taken when the grant is booked. In the order of plan.netdevs; the
// n-th of them, counted from `first` (rails that the grant has already), gets table first_table + n. Errors are
// refusals with the remedy:
// - to be moved: a netdev (or what is stacked on it) with the node's default route or an address by which kubelet or
//   sshd is reached (unless take_node_netdevs), a bond or bridge, one netdev twice;
// - anything enslaved;
// - children: while the RDMA subsystem is exclusive (the HCA would not be visible inside), macvlan or ipvlan over
//   IPoIB, ipoib over Ethernet, an MTU above the parent's, a rail that none of the network's ranges is for;
// - VF attributes for what is no VF or no move, of the other link layer, or one MAC address or GUID twice;
// - a table that is the kernel's own, or twice;
// - an HCA or netdev that is gone.
Result<std::vector<Rail>> plan_rails(const Plan& plan, const Config& config, const fabric::Inventory& inventory,
                                     const NodeNetwork& node, std::size_t first = 0);

// pattern: "net%d", config.json's "netdev_names". taken: what the namespace has already. Each rail gets the first free
// number from 1 on, in their order.
void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails);

}  // namespace hook
