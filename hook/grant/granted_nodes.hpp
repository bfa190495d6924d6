// Checks the HCA nodes in a container's config.json, because another NRI plugin may have changed them after rdma-nri.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// Checks that each node of a granted HCA is the granted device, by type and number. A missing node is no error: a pod's
// grant holds the HCAs of all its containers. A node of an HCA that is not in the inventory is no error: the HCA may
// have moved into the pod's network namespace. requesting: must have a request. granted: HCAs with the names that they
// have in the inventory. Errors: a node of a granted HCA is another device; a node belongs to an HCA that is not
// granted; the inventory lacks the numbers. Pure.
base::Result<void> check_granted_nodes(const ContainerRequest& requesting, const std::vector<PlannedHca>& granted,
                                       const fabric::Inventory& inventory);

}  // namespace hook
