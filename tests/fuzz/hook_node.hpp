// A node for requests to be about, and what an edit must keep.
#pragma once

#include <string>
#include <string_view>

#include "fabric/inventory.hpp"
#include "hook/base/json/json.hpp"

namespace fuzz {

// Four RoCE HCAs, one InfiniBand HCA, one without a uverbs node, and two GPUs.
fabric::Inventory small_node();

// Every member that was there is there with its value. Lists only grow; the entries of the one at `limits` may change,
// as may the value at `replaced`.
void require_kept(const hook::Json& before, const hook::Json& after, std::string_view limits,
                  std::string_view replaced = {}, const std::string& path = {});

}  // namespace fuzz
