// What follows from the HCAs that were chosen: nodes, netdevs, the sysfs view. Internal to hook/.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// uverbsN of each, umad and issm where config.json says so, rdma_cm.
std::vector<PlannedNode> planned_nodes(const NodeOptions& options, const fabric::Inventory& inventory,
                                       const std::vector<const NodeHca*>& granted);

// One per unit whose terms have a network and a mode other than hca. Errors: an HCA whose netdev is not known, or that
// cannot have such a child.
fabric::Result<std::vector<PlannedNetdev>> planned_netdevs(const PlanInput& input, const Chosen& chosen,
                                                           std::vector<std::string>& warnings);

// plan.mounts and plan.view. Nothing when config.json turns the view off, when the kernel isolates RDMA devices by
// itself (netns mode exclusive), or when the container gets all HCAs that there are.
void plan_view(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan);

}  // namespace hook
