// Properties of every decision, on any machine.
#pragma once

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/settings.hpp"

namespace fuzz {

// Decides, checks the properties and every output format, and returns the decision.
init::Decision decide_checked(const fabric::Inventory& inventory, const init::Settings& settings,
                              const init::Policy& policy);

}  // namespace fuzz
