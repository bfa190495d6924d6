#include "hook/admin/metrics/count.hpp"

#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "hook/admin/metrics/metrics.hpp"

namespace hook {
namespace {

// Errors are ignored: counting must not fail the start of a container.
void add(const Result<Counters>& counters, const std::vector<Increment>& counts) {
  if (counters) counters->add(counts);
}

std::vector<Increment> releases_of(const Outcome& outcome) {
  std::vector<Increment> counts;
  for (const ReleaseReason reason : outcome.released)
    counts.push_back({kReleasesTotal, {{"reason", std::string(to_string(reason))}}});
  return counts;
}

Increment failure_of(std::string_view stage, const Error& error) {
  const std::string reason(to_string(failure_reason(error)));
  return {kFailuresTotal, {{"stage", std::string(stage)}, {"reason", reason}}};
}

}  // namespace

void count_stage(std::string_view stage, const Call& call, const Result<void>& result) {
  // All increments are in one list, because each call of Counters::add() locks and reads the file.
  const std::string label(stage);
  std::vector<Increment> counts = releases_of(call.outcome);
  if (const auto& mode = call.outcome.granted_mode)
    counts.push_back({kGrantsTotal, {{"engine", std::string(to_string(call.outcome.engine))}, {"mode", *mode}}});
  if (!result) counts.push_back(failure_of(stage, result.error()));
  if (counts.empty()) return;
  for (Increment& increment : observed_stage(label, result.has_value(), call.timing.total()))
    counts.push_back(std::move(increment));
  for (const auto& [step, microseconds] : call.timing.steps()) {
    const Labels labels{{"stage", label}, {"step", step}};
    counts.push_back({kDurationTotal, labels, microseconds});
    counts.push_back({kDurationCount, labels});
  }
  add(call.ledger ? Counters::open(call.ledger->ledger.directory()) : Counters::open(call.node.ledger), counts);
}

void count_claim(const std::string& ledger, std::string_view stage, const Result<void>& result,
                 std::uint64_t microseconds) {
  std::vector<Increment> counts = observed_stage(stage, result.has_value(), microseconds);
  if (!result) counts.push_back(failure_of(stage, result.error()));
  add(Counters::open(ledger), counts);
}

void count_releases(const std::string& ledger, const Outcome& outcome) {
  if (const auto counts = releases_of(outcome); !counts.empty()) add(Counters::open(ledger), counts);
}

void count_releases(const LedgerDirectory& ledger, const Outcome& outcome) {
  if (const auto counts = releases_of(outcome); !counts.empty()) add(Counters::open(ledger), counts);
}

}  // namespace hook
