// A node for requests to be about.
#pragma once

#include "fabric/inventory.hpp"

namespace fuzz {

// Four RoCE HCAs, one InfiniBand HCA, one without a uverbs node, and two GPUs.
fabric::Inventory small_node();

}  // namespace fuzz
