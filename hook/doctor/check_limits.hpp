// What keeps one container from taking all objects of an HCA that others share. Pure.
#pragma once

#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/config/config.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

// A warning for each pool of config.json with HCAs of this node that containers share without "hca_objects", and one
// for limits that the node cannot set. controller: nullopt: not looked at.
std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<fabric::Result<RdmaController>>& controller);

}  // namespace hook
