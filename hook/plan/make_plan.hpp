#pragma once

#include "fabric/result.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Pure. Errors are refusals, with the remedy as hint: those of Candidates::matched, an HCA that another container
// holds, a mode that the pool does not allow, fewer HCAs than asked for, a device number or what a view is made of that
// could not be read (Inventory::unread).
fabric::Result<Plan> make_plan(const PlanInput& input);

}  // namespace hook
