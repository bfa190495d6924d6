// Plans the device nodes, netdevs and sysfs view of chosen HCAs. Internal to hook/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Checks that a part of the node was read. hca: the HCA, for a part that is read per HCA; nullopt: all HCAs. Errors:
// the part was not read; the error names its path.
Result<void> was_read(const fabric::Inventory& inventory, fabric::Unread::Part part,
                      std::optional<std::string_view> hca = std::nullopt);

// Returns uverbsN of each HCA, umad and issm if config.json enables them, and rdma_cm. Errors: a node could not be
// read.
Result<std::vector<PlannedNode>> planned_nodes(const NodeOptions& options, const fabric::Inventory& inventory,
                                               const std::vector<const NodeHca*>& granted);

// Returns the lower value of each limit. A missing value is no limit.
RdmaLimits lower_of(const RdmaLimits& left, const RdmaLimits& right);

// Returns the RDMA limits of the HCAs in `held`: those of pools, and lower ones of claims. An exclusive HCA gets no
// limit, because no other container uses it.
std::vector<PlannedRdmaLimit> planned_rdma_limits(const std::vector<PlannedHca>& held, const NodeMap& node,
                                                  const std::map<std::string, ClaimTerms>& claimed);

// Sets plan.netdevs: one netdev per unit that has a network and a mode other than hca, except netdevs that moved to the
// container or its pod before. Plans none, with a warning, if the container is in the node's network namespace. Errors:
// an HCA without a netdev on the node, a netdev that cannot move, a link layer that the network's kind of child netdev
// does not support, a rail with an uncertain number.
Result<void> plan_netdevs(const PlanInput& input, const Chosen& chosen, Plan& plan);

// Returns whether the rail of a unit will have an address other than link-local: from the network or, in mode
// exclusive, from the netdev. If a snapshot does not list netdevs, each HCA counts as having such an address.
bool has_address(const PlanInput& input, const ChosenHca& unit);
// Returns whether the HCA's netdev has an address other than link-local on the node. In mode exclusive, the address
// moves with the netdev. If a snapshot does not list netdevs, each HCA counts as having such an address.
bool has_own_address(const fabric::Inventory& inventory, const NodeHca& node);

// Sets RDMA_INIT_REQUIRE to the number of HCAs that the container can use: rdma-init waits for them and fails if fewer
// become usable. If the number is 0, the variable is not set, and a warning has the reason. If the container sets the
// variable, its value stays, with a warning if rdma-init cannot parse it or will not find as many HCAs.
void require_usable(const PlanInput& input, const Chosen& chosen, Plan& plan);
// Sets RDMA_INIT_NODE_ADDRESSES for a container with its own network namespace and no rails. The value has the
// addresses that the netdevs of these HCAs have on the node: rdma-init may use their GIDs. In an exclusive RDMA
// subsystem, the variable is not set.
void announce_node_addresses(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan);

// Returns the "env" values for a container with these HCAs. The value of an HCA's network precedes that of its pool. A
// variable for which the HCAs have different values is left out, with a warning in the plan.
SiteValues site_values(const std::vector<ChosenHca>& units, Plan& plan);

// Returns whether the container gets the administrator's topology file.
bool has_topology(const PlanInput& input);

// Sets fabric::kSiteName to the site_values() of the chosen HCAs, and to NCCL_TOPO_FILE for the topology file unless
// "env" has it. A topology file that cannot be read causes a warning.
void set_site_values(const PlanInput& input, const Chosen& chosen, Plan& plan);

// Sets fabric::kRailsName to rail and plane of the HCAs that "rails" of config.json selects. If an HCA's entry is not
// known, the variable is not set, with a warning.
void set_rails(const std::vector<const NodeHca*>& granted, Plan& plan);

// Sets plan.mounts and plan.view: the view of sysfs, the topology file, and the libraries of input.lendable for granted
// HCAs of pools that lend them. Libraries that cannot be lent cause a warning. Leaves out the view of sysfs if
// config.json disables it, if the RDMA subsystem is exclusive, or if the container gets all HCAs. With
// ViewMount::kLater, the createRuntime hook makes it. Errors: an entry of the view could not be read.
Result<void> plan_view(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan);

// Sets the new numbers of the plan's device nodes in one pass, because devices can swap numbers. plan.view needs no
// change: RDMA devices move only in an exclusive RDMA subsystem, where no view is made. inventory: the inventory from
// which the plan was made.
void renumber(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes, Plan& plan);

}  // namespace hook
