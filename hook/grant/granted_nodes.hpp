// Whether a container's config.json has the nodes of the HCAs that it was granted, and of no others. What came after
// rdma-nri, another NRI plugin for example, may have changed them.
#pragma once

#include <vector>

#include "fabric/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// Compares type and number. Nodes that are missing are no error: a pod's grant holds the HCAs of all its containers.
// Nor are nodes of HCAs that the inventory does not have, because they may have moved into the pod's network namespace.
// asking.request: there is one. granted: by the names that the inventory has. Errors: a node of a granted HCA is
// another device, a node is that of an HCA that is not granted, the inventory does not tell the numbers. Pure.
fabric::Result<void> check_granted_nodes(const Asking& asking, const std::vector<PlannedHca>& granted,
                                         const fabric::Inventory& inventory);

}  // namespace hook
