// What a call did, in the counters that `rdma-hook metrics` prints. Counting is no reason to fail or to wait.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/program/stages.hpp"

namespace hook {

// stage: its label. A container that asked for nothing is not counted.
void count_call(std::string_view stage, Call& call, const fabric::Result<void>& result);
void add_counts(const std::string& ledger, const std::vector<Increment>& counts);

}  // namespace hook
