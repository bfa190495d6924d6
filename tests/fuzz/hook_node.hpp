// A node for the requests of fuzz targets, and the check that an edit keeps existing content.
#pragma once

#include <string>
#include <string_view>

#include "base/json/json.hpp"
#include "fabric/inventory.hpp"

namespace fuzz {

// Four RoCE HCAs, one InfiniBand HCA, one without a uverbs node, and two GPUs.
fabric::Inventory small_node();

// Demands that each member of `before` is in `after` with its value, and that lists only grow. The entries of the list
// at path `limits`, and the value at path `replaced`, may change.
void require_kept(const base::Json& before, const base::Json& after, std::string_view limits,
                  std::string_view replaced = {}, const std::string& path = {});

}  // namespace fuzz
