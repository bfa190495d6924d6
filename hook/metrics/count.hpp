// What a call did, in the counters that `rdma-hook metrics` prints. Counting fails no call, and delays none for long
// (Counters::add()).
#pragma once

#include <string>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// At the end of a stage. stage: its label. A container that asked for nothing is not counted.
void count_stage(std::string_view stage, const Call& call, const Result<void>& result);
// For a call that is no stage: counts only what it returned on its way.
void count_returns(const std::string& ledger, const Outcome& outcome);

}  // namespace hook
