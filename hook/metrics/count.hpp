// Adds the result of a call to the counters that `rdma-hook metrics` prints. Counting never fails a call, and delays it
// by at most 10 ms (Counters::add()).
#pragma once

#include <string>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// Counts at the end of a stage. stage: its label. Counts nothing if the call granted nothing, released nothing and
// succeeded.
void count_stage(std::string_view stage, const Call& call, const Result<void>& result);
// Counts only the grants that the call released, for a call that is not a stage.
void count_returns(const std::string& ledger, const Outcome& outcome);

}  // namespace hook
