// How long stages took as a whole, as a histogram of Prometheus: rdma_hook_stage_duration_microseconds. In DIR/metrics
// each call is in one bucket only, which is one series to change; what Prometheus reads adds them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hook/metrics/counters.hpp"

namespace hook {

// One call more of that stage ("createRuntime"), which ended well or did not: what is to be counted.
std::vector<Increment> observed_stage(std::string_view stage, bool done, std::uint64_t microseconds);

// The counters with the histogram's as Prometheus wants them: buckets that hold all below them, _sum and _count.
std::vector<Sample> with_histograms(std::vector<Sample> counted);

}  // namespace hook
