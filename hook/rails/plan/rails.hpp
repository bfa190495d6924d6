// Plans the rails of a container from the netdevs of its plan, and refuses netdevs that must not leave the node.
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

// The part of the node's network that decides whether a netdev may leave it.
struct NodeNetwork {
  std::vector<fabric::Netdev> netdevs;              // of the node's namespace, with their addresses
  std::vector<fabric::Route> routes;                // all tables
  std::map<fabric::Address, std::string> services;  // "sshd" or "kubelet" by the node's address that it uses
};

// Returns the local addresses on which sshd (TCP port 22) and kubelet (10250, and its connection to the API server's
// 6443) listen or have connections. Leaves out wildcards and loopback. tcp, tcp6: texts of /proc/net/tcp and tcp6.
// Pure.
std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6);

// Reads netdevs, addresses and default routes by netlink. for_moves: also read all next hops of multipath default
// routes, and the first 4 MiB of /proc/net/tcp and tcp6. Errors: netlink, or a file that cannot be read.
Result<NodeNetwork> read_node_network(bool for_moves);

// Addresses, routes and rules of a rail inside.
struct RailConfig {
  std::vector<NetRecord> addresses;
  // In the order in which the kernel accepts them. A rail with a table of its own has no routes in the main table. Its
  // table has the connected route and the default route by the gateway. A rule `from ADDRESS lookup TABLE` selects it.
  std::vector<NetRecord> routes;
};

// Computes the configuration of a rail. Pure.
// ifindex: of the netdev inside.
// carried: records of the netdev on the node. They are used if the rail has no addresses, and moved without change;
// rules for the rail's own table are added.
RailConfig configure_rail(const Rail& rail, int ifindex, unsigned rule_priority, const std::vector<NetRecord>& carried);

// Returns the address that NCCL is to use by its GID: IPv4 before IPv6, never fe80::/10; nullopt: none.
std::optional<fabric::Address> gid_address(const RailConfig& config);

// Returns the addresses in these records, without the link-local ones that the kernel makes for every netdev.
std::vector<RailAddress> addresses_in(const std::vector<NetRecord>& records);

// Adds one warning about the RoCE rails among `rails`, which have no address. InfiniBand needs none.
void warn_of_no_address(const std::vector<const Rail*>& rails, const fabric::Inventory& inventory,
                        std::vector<std::string>& warnings);

// Plans one rail for each of plan.netdevs, in their order and without addresses, which take_addresses() allocates
// later. Pure.
// first: number of rails that the grant already has. The n-th rail, counted from `first`, gets table first_table + n.
// Errors are refusals with the remedy:
// - a moving netdev that has the node's default route or an address of kubelet or sshd, itself or by a netdev stacked
//   on it (unless take_node_netdevs); a moving bond or bridge; a netdev that would move twice;
// - an enslaved netdev;
// - a child while the RDMA subsystem is exclusive (the HCA would not be visible inside), macvlan or ipvlan over IPoIB,
//   ipoib over Ethernet, an MTU above the parent's, a rail for which the network has no range;
// - VF attributes for a netdev that is no VF or does not move, of the other link layer, or the same MAC address or GUID
//   twice;
// - a routing table that the kernel reserves, or the same one twice;
// - an HCA or netdev that is gone.
Result<std::vector<Rail>> plan_rails(const Plan& plan, const Config& config, const fabric::Inventory& inventory,
                                     const NodeNetwork& node, std::size_t first = 0);

// Names the rails, each with the next free number from 1 on. pattern: "net%d", the "netdev_names" of config.json.
// taken: names of netdevs that the namespace already has.
void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails);

}  // namespace hook
