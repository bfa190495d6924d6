// The figures that all reports of rdma-ping share. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "init/ping/causes.hpp"
#include "init/ping/outcome.hpp"

namespace init::ping {

// Tests of pairs of ranks on the same rail.
struct Totals {
  std::size_t good = 0;
  std::size_t failed = 0;
  std::size_t untested = 0;

  std::size_t all() const { return good + failed + untested; }
};

Totals count_tests(const Outcome& outcome);
// Returns what a sparse schedule leaves out: "tested 20 of 1023 peers for each rail; one bad pair is found with a
// probability of 2.0 %". Returns an empty text if all pairs meet.
std::string coverage_text(const Outcome& outcome);
// Returns the share of all pairs that meet.
double share_of_pairs(const Outcome& outcome);
// Returns true if the schedule has a test of these two different members, in any order.
bool meet(const Outcome& outcome, std::size_t member, std::size_t other);
// Returns the result of one test, kUntested if no pair was tested. first < second.
Layer result_of(const Outcome& outcome, std::size_t first, std::size_t second, unsigned rail);
// Returns the result of the worst rail between two different members, in any order: the first layer that failed,
// otherwise kUntested if a rail is untested.
Layer worst_rail(const Outcome& outcome, std::size_t member, std::size_t other);
// Returns true if all ranks came and NCCL uses no HCA port on any of them.
bool has_no_rails(const Outcome& outcome);
// Returns true if there is no cause and each test is good.
bool is_good(const Outcome& outcome, const std::vector<Cause>& causes);
// Returns what NCCL needs if no crossed rail reaches another one; empty if some do, or none was tested.
std::string_view remedy_of_crossed(const Outcome& outcome);
// Returns one line: "bad: 1 cause; 10 of 12 tests are good".
std::string summary_of(const Outcome& outcome, const std::vector<Cause>& causes);

// A pair whose bandwidth is below kSlow of the median of all pairs (--bw).
struct SlowPair {
  std::size_t first = 0;
  std::size_t second = 0;
  unsigned rail = 0;
  float gbps = 0;
};
inline constexpr float kSlow = 0.8F;
// Returns the median of all measured cells in Gb/s, 0 without --bw.
float median_gbps(const Outcome& outcome);
std::vector<SlowPair> find_slow_pairs(const Outcome& outcome);

}  // namespace init::ping
