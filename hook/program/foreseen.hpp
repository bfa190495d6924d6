// The rails of `rdma-hook plan`. Pure.
#pragma once

#include <string>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/rails/foresee.hpp"

namespace hook {

// [{"name", "network", "rail", "hca", "host", "kind", "addresses": [{"address": "10.1.0.5/24", "gateway"}],
//   "addresses_by", "table"}]
Json foreseen_json(const std::vector<ForeseenRail>& rails);
// The same for people: one line per rail.
std::string foreseen_text(const std::vector<ForeseenRail>& rails);

}  // namespace hook
