// From the plan's netdevs to rails: what each becomes inside, and what may not leave the node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/plan/node_network.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// Pure, and addresses are still missing: they are taken when the grant is booked. In the order of plan.netdevs; the
// n-th of them, counted from `first` (rails that the grant has already), gets table first_table + n. Errors are
// refusals with the remedy:
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
                                             const NodeNetwork& node, std::size_t first = 0);

// pattern: "net%d", config.json's "netdev_names". taken: what the namespace has already. Each rail gets the first free
// number from 1 on, in their order.
void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails);

}  // namespace hook
