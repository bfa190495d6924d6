// A uverbs node that got another number when its RDMA device went into the container's network namespace.
#pragma once

#include <string>

#include "fabric/inventory.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

struct NewNode {
  std::string hca;
  unsigned uverbs = 0;  // N of uverbsN
  std::string dev;      // "MAJ:MIN"
};

// The plan's node and its entry in the sysfs view follow. inventory: what the plan was made from.
void renumber(const fabric::Inventory& inventory, const NewNode& node, Plan& plan);

}  // namespace hook
