// What follows from the HCAs that were chosen: nodes, netdevs, the sysfs view. Internal to hook/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Whether such parts of the node were read: its own, and those of that HCA; nullopt: of all HCAs. The error names the
// path that was not.
Result<void> was_read(const fabric::Inventory& inventory, fabric::Unread::Part part,
                      std::optional<std::string_view> hca = std::nullopt);

// uverbsN of each, umad and issm where config.json says so, rdma_cm. Errors: one of them could not be read.
Result<std::vector<PlannedNode>> planned_nodes(const NodeOptions& options, const fabric::Inventory& inventory,
                                               const std::vector<const NodeHca*>& granted);

// Those of the pools of HCAs that are held. In mode exclusive no other container uses the HCA.
std::vector<PlannedRdmaLimit> planned_rdma_limits(const std::vector<PlannedHca>& held, const NodeMap& node);

// One per unit whose terms have a network and a mode other than hca. Errors: an HCA whose netdev is not known, or that
// cannot have such a child.
Result<std::vector<PlannedNetdev>> planned_netdevs(const PlanInput& input, const Chosen& chosen,
                                                   std::vector<std::string>& warnings);

// Whether its rail, which it has, will have an address beside those that the kernel gives every netdev: one of the
// network, or in mode exclusive those of the netdev, which a snapshot without netdevs does not deny.
bool has_address(const PlanInput& input, const ChosenHca& unit);
// Whether the HCA's netdev has such an address on the node, which goes with it; as above of a snapshot without netdevs.
bool has_own_address(const fabric::Inventory& inventory, const NodeHca& node);

// RDMA_INIT_REQUIRE: rdma-init waits for so many HCAs, and ends the trainer when they do not become usable. So it
// counts those that the container can use where it will be; when it can use none it is not set, and a warning says why.
// What the container says itself stays; a warning says when rdma-init cannot read it, or will not find so many.
void require_usable(const PlanInput& input, const Chosen& chosen, Plan& plan);
// Sets RDMA_INIT_NODE_ADDRESSES of a container with a network namespace of its own and no rails: the addresses that the
// node's netdevs of these HCAs have, whose GIDs rdma-init may take. Nothing in an exclusive RDMA subsystem.
void tell_node_addresses(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan);

// plan.mounts and plan.view. Nothing when config.json turns the view off, when the kernel isolates RDMA devices by
// itself (netns mode exclusive), or when the container gets all HCAs that there are. Errors: what the view is made of
// could not be read.
Result<void> plan_view(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan);

// The plan's nodes follow; all at once, because devices may have swapped numbers. The view need not: where RDMA devices
// move there is none. inventory: what the plan was made from.
void renumber(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes, Plan& plan);

}  // namespace hook
