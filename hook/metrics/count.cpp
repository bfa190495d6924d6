#include "hook/metrics/count.hpp"

#include <utility>
#include <vector>

#include "hook/base/failure.hpp"
#include "hook/metrics/metrics.hpp"

namespace hook {
namespace {

void add(const std::string& ledger, const std::vector<Increment>& counts) {
  if (counts.empty()) return;
  // Errors are ignored: counting must not fail the start of a container.
  if (const auto counters = Counters::open(ledger)) counters->add(counts);
}

std::vector<Increment> returns_of(const Outcome& outcome) {
  std::vector<Increment> counts;
  for (const ReturnReason reason : outcome.returned)
    counts.push_back({kReturnsTotal, {{"reason", std::string(to_string(reason))}}});
  return counts;
}

}  // namespace

void count_stage(std::string_view stage, const Call& call, const Result<void>& result) {
  // All increments are in one list, because each call of Counters::add() locks and reads the file.
  const std::string label(stage);
  std::vector<Increment> counts = returns_of(call.outcome);
  if (const auto& mode = call.outcome.granted_mode)
    counts.push_back({kGrantsTotal, {{"engine", std::string(to_string(call.outcome.engine))}, {"mode", *mode}}});
  if (!result) {
    const std::string reason(to_string(failure_reason(result.error())));
    counts.push_back({kFailuresTotal, {{"stage", label}, {"reason", reason}}});
  }
  if (counts.empty()) return;
  for (Increment& increment : observed_stage(label, result.has_value(), call.timing.total()))
    counts.push_back(std::move(increment));
  for (const auto& [step, microseconds] : call.timing.steps()) {
    const Labels labels{{"stage", label}, {"step", step}};
    counts.push_back({kDurationTotal, labels, microseconds});
    counts.push_back({kDurationCount, labels});
  }
  add(call.node.ledger, counts);
}

void count_returns(const std::string& ledger, const Outcome& outcome) {
  add(ledger, returns_of(outcome));
}

}  // namespace hook
