#pragma once

#include "init/decision.hpp"

namespace init {

// The whole decision of rdma-init: inventory and settings in, variables and reasons out. Pure.
Decision decide(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy);

}  // namespace init
