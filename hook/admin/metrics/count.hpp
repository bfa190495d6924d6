// Adds the result of a call to the counters that `rdma-hook metrics` prints. Counting never fails a call, and delays it
// by at most 10 ms (Counters::add()).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// Counts the result of a stage at its end. stage: its label, such as "createRuntime". Counts nothing for a call that
// succeeded without a grant or a release.
void count_stage(std::string_view stage, const Call& call, const Result<void>& result);
// Counts a call of the kubelet for one claim of Dynamic Resource Allocation. stage: "prepare" or "unprepare".
// microseconds: its time, with that of the API server.
void count_claim(const std::string& ledger, std::string_view stage, const Result<void>& result,
                 std::uint64_t microseconds);
// Counts the grants that were released by a call that is not a stage, such as `rdma-hook recover`.
void count_releases(const std::string& ledger, const Outcome& outcome);
void count_releases(const LedgerDirectory& ledger, const Outcome& outcome);

}  // namespace hook
