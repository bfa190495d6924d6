#include "init/ping/totals.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "init/ping/describe.hpp"

namespace init::ping {

Totals count_tests(const Outcome& outcome) {
  Totals totals;
  for (const Layer layer : outcome.cells) {
    totals.good += layer == Layer::kGood;
    totals.failed += layer != Layer::kGood && layer != Layer::kUntested;
  }
  totals.untested = outcome.count_pairs() * outcome.rails - totals.good - totals.failed;
  return totals;
}

double share_of_pairs(const Outcome& outcome) {
  const auto members = static_cast<double>(outcome.members.size());
  return outcome.is_sparse() ? static_cast<double>(outcome.pairs.size()) / (members * (members - 1) / 2) : 1;
}

std::string coverage_text(const Outcome& outcome) {
  if (!outcome.is_sparse()) return "";
  const std::size_t peers = outcome.members.size() - 1;
  const double share = share_of_pairs(outcome);
  return fmt::format("tested {:.0f} of {} peers for each rail; one bad pair is found with a probability of {:.1f} %",
                     share * static_cast<double>(peers), peers, share * 100);
}

bool meet(const Outcome& outcome, std::size_t member, std::size_t other) {
  const auto [first, second] = std::minmax(member, other);
  return !outcome.is_sparse() || outcome.cell_of(first, second, 0) < outcome.cells.size();
}

Layer result_of(const Outcome& outcome, std::size_t first, std::size_t second, unsigned rail) {
  const std::size_t cell = outcome.cell_of(first, second, rail);
  return cell < outcome.cells.size() ? outcome.cells[cell] : Layer::kUntested;
}

Layer worst_rail(const Outcome& outcome, std::size_t member, std::size_t other) {
  const auto [first, second] = std::minmax(member, other);
  Layer worst = outcome.rails == 0 ? Layer::kUntested : Layer::kGood;
  for (unsigned rail = 0; rail < outcome.rails; ++rail) {
    const Layer layer = result_of(outcome, first, second, rail);
    if (layer != Layer::kGood && (worst == Layer::kGood || layer < worst)) worst = layer;
  }
  return worst;
}

bool has_no_rails(const Outcome& outcome) {
  return outcome.members.size() > 1 && outcome.rails == 0 && outcome.unequal.empty();
}

bool is_good(const Outcome& outcome, const std::vector<Cause>& causes) {
  const bool has_tests = outcome.rails > 0 || outcome.members.size() < 2;
  return causes.empty() && outcome.absent.empty() && outcome.unequal.empty() && has_tests &&
         count_tests(outcome).good == count_tests(outcome).all();
}

std::string_view remedy_of_crossed(const Outcome& outcome) {
  if (outcome.crossed_tested == 0 || outcome.crossed_failed() < outcome.crossed_tested) return {};
  return "set NCCL_CROSS_NIC=0 on all ranks, because NCCL may otherwise connect two different rails";
}

std::string summary_of(const Outcome& outcome, const std::vector<Cause>& causes) {
  const Totals totals = count_tests(outcome);
  if (is_good(outcome, causes)) {
    const bool have_waiting = outcome.members.size() < outcome.size;
    return fmt::format("good: {}{}, {}, {} in {:.1f} s", count_of(outcome.size, "rank"),
                       have_waiting ? " on " + count_of(outcome.members.size(), "node") : "",
                       count_of(outcome.rails, "rail"), count_of(totals.all(), "test"), outcome.seconds);
  }
  if (has_no_rails(outcome)) return "no rank has an HCA port that NCCL uses";
  std::string text = fmt::format("bad: {}; ", count_of(causes.size(), "cause"));
  if (totals.good + totals.failed == 0) return text + "nothing was tested";
  text += fmt::format("{} of {} {} good", totals.good, count_of(totals.all(), "test"), totals.good == 1 ? "is" : "are");
  if (totals.untested > 0) text += fmt::format(", {} untested", totals.untested);
  return text + (outcome.out_of_time ? "; out of time" : "");
}

float median_gbps(const Outcome& outcome) {
  std::vector<float> measured;
  std::ranges::copy_if(outcome.gbps, std::back_inserter(measured), [](float gbps) { return gbps > 0; });
  if (measured.empty()) return 0;
  const auto middle = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
  std::ranges::nth_element(measured, middle);
  return *middle;
}

std::vector<SlowPair> find_slow_pairs(const Outcome& outcome) {
  std::vector<SlowPair> slow;
  const float limit = median_gbps(outcome) * kSlow;
  outcome.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    const float gbps = cell < outcome.gbps.size() ? outcome.gbps[cell] : 0;
    if (gbps > 0 && gbps < limit) slow.push_back({first, second, rail, gbps});
  });
  return slow;
}

}  // namespace init::ping
