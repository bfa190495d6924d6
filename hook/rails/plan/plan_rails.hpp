// Plans the rails of a container from the netdevs of its plan, and refuses netdevs that must not leave the node.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// The part of the node's network that decides whether a netdev may leave the node.
struct NodeNetwork {
  std::vector<fabric::Netdev> netdevs;              // netdevs of the node's namespace with their addresses
  std::vector<fabric::Route> routes;                // default routes of the netdev
  std::map<fabric::Address, std::string> services;  // "sshd" or "kubelet", by the node's address that it uses
};

// Returns the local addresses on which sshd and kubelet listen or have connections. sshd has TCP port 22. kubelet has
// port 10250. A connection to port 6443, the port of the API server, counts as a connection of kubelet. Leaves out
// wildcards and loopback. Pure.
// tcp, tcp6: texts of /proc/net/tcp and tcp6.
std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6);

// Reads netdevs, addresses and default routes by netlink. Errors: netlink fails, or a file cannot be read.
// for_moves: also reads all next hops of multipath default routes, and the first 4 MiB of /proc/net/tcp and tcp6.
Result<NodeNetwork> read_node_network(bool for_moves);

// Addresses, routes and rules of a rail in the container.
struct RailConfig {
  std::vector<NetRecord> addresses;
  // Routes and rules, in the order in which the kernel accepts them. A rail with a table of its own and allocated
  // addresses has no routes in the main table. The rail's table has the connected route and the default route by the
  // gateway, and a rule `from ADDRESS lookup TABLE` selects this table. A rail that keeps the netdev's addresses also
  // keeps the netdev's routes.
  std::vector<NetRecord> routes;
};

// Computes the configuration of a rail. Pure.
// ifindex: index of the netdev in the container.
// carried: records of the netdev on the node. A rail without allocated addresses gets these records. A rail with its
// own table also gets routes and rules for that table.
RailConfig configure_rail(const Rail& rail, int ifindex, unsigned rule_priority, const std::vector<NetRecord>& carried);

// Returns the address whose GID NCCL uses: IPv4 before IPv6, never a link-local or loopback address; nullopt if there
// is none.
std::optional<fabric::Address> gid_address(const RailConfig& config);

// Returns the addresses in these records, without link-local addresses.
std::vector<RailAddress> addresses_in(const std::vector<NetRecord>& records);

// Returns the warning that names the RoCE rails in `rails`; nullopt: there are none. InfiniBand rails need no address.
// rails: the rails that have no address.
std::optional<std::string> no_address_warning(const std::vector<const Rail*>& rails,
                                              const fabric::Inventory& inventory);

// Plans one rail for each netdev of plan.netdevs, in their order. The rails have no addresses yet; take_addresses()
// allocates them later. Pure.
// first: number of rails that the grant already has. The new rails are counted on from `first`, and rail n gets table
// first_table + n.
// Errors are refusals with the remedy:
// - a moving netdev that has the node's default route or an address of kubelet or sshd, or that is below a netdev that
//   has one of these (unless take_node_netdevs);
// - a moving netdev that has enslaved other netdevs, such as a bond, or that two rails use;
// - an enslaved netdev;
// - a child while the RDMA subsystem is exclusive (the container would not see the HCA), macvlan or ipvlan over IPoIB,
//   ipoib over Ethernet, an MTU above the parent's, a child of a rail for which the network has no range;
// - VF attributes for a netdev that is no VF or does not move, VF attributes of the other link layer, or the same MAC
//   address or GUID twice;
// - a routing table that the kernel reserves, or that two rails would use;
// - an HCA or netdev that is gone, or a network that is not in config.json.
Result<std::vector<Rail>> plan_rails(const Plan& plan, const Config& config, const fabric::Inventory& inventory,
                                     const NodeNetwork& node, std::size_t first = 0);

// Names the rails. The name of a rail is the pattern with the next number for which the namespace has no netdev, from 1
// on.
// pattern: the "netdev_names" of config.json, such as "net%d".
// taken: names of netdevs that the namespace already has.
void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails);

}  // namespace hook
