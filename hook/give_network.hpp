// The rails of a container's plan, at createRuntime.
#pragma once

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/decide.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/live/run_steps.hpp"
#include "hook/plan/plan.hpp"
#include "hook/stages.hpp"

namespace hook {

// After booking: what fails here is undone when the booking is. Nodes of the plan get the numbers that their RDMA
// devices have inside. Errors: as give_rails().
fabric::Result<void> give_network(const Container& container, const LiveContainer& live,
                                  const fabric::Inventory& inventory, const Ledger& ledger, const Owner& owner,
                                  Call& call, Plan& plan);

}  // namespace hook
