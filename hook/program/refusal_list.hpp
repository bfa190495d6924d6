// The output of `rdma-hook devices --refused`.
#pragma once

#include <string>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "hook/ledger/refusals.hpp"

namespace hook {

// Returns {"refusals": [{"time", "container", "pod" ({"namespace", "name", "container"} or null), "stage", "reason",
// "message", "remedy"}]}, in the order of the list.
Json refusals_json(const std::vector<Refusal>& refusals);

// Returns the refusals in lines of 80 columns, or one line if there are none.
std::string refusals_text(const std::vector<Refusal>& refusals);

}  // namespace hook
