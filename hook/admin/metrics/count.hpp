// Adds the result of a call to the counters that `rdma-hook metrics` prints. Counting never fails a call, and delays it
// by at most 10 ms (Counters::add()).
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// Counts the result of a stage at its end. stage: its label, such as "createRuntime". Counts nothing for a call that
// succeeded without a grant or a release.
void count_stage(std::string_view stage, const Call& call, const Result<void>& result);
// Counts the grants that were released by a call that is not a stage, such as `rdma-hook recover`.
void count_releases(const std::string& ledger, const Outcome& outcome);
void count_releases(const LedgerDirectory& ledger, const Outcome& outcome);

}  // namespace hook
