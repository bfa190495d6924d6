// What holds of every decision, whatever the machine looks like.
#pragma once

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/settings.hpp"

namespace fuzz {

// Decides, demands what must hold, runs every output over it, and returns the decision.
init::Decision decide_checked(const fabric::Inventory& inventory, const init::Settings& settings,
                              const init::Policy& policy);

}  // namespace fuzz
