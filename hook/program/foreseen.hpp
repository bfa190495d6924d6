// Prints the rails of `rdma-hook plan`. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "hook/rails/foresee.hpp"

namespace hook {

// Returns [{"name", "network", "rail", "hca", "host", "kind", "addresses": [{"address": "10.1.0.5/24", "gateway"}],
// "addresses_by", "table"}]
Json foreseen_json(const std::vector<ForeseenRail>& rails);
// Returns one line of text per rail.
std::string foreseen_text(const std::vector<ForeseenRail>& rails);

}  // namespace hook
