// What is set already for libraries beside NCCL, whose values the decision itself checks: lists of devices that name
// what is not here or cannot be used, and GID indices of another namespace. Pure.
#pragma once

#include <vector>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"

namespace init {

// A note for each wrong value.
std::vector<Check> check_other_values(const fabric::Inventory& inventory, const Settings& settings,
                                      const Policy& policy, const Decision& decision);

}  // namespace init
