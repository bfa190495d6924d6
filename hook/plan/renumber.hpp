// A uverbs node that got another number when its RDMA device went into the container's network namespace.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

struct NewNode {
  std::string hca;
  unsigned uverbs = 0;  // N of uverbsN
  std::string dev;      // "MAJ:MIN"
};

// The plan's nodes and their entries in the sysfs view follow; all at once, because devices may have swapped numbers.
// inventory: what the plan was made from.
void renumber(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes, Plan& plan);

}  // namespace hook
