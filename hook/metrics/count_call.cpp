#include "hook/metrics/count_call.hpp"

#include <utility>

#include "hook/base/failure.hpp"
#include "hook/metrics/histogram.hpp"

namespace hook {

void add_counts(const std::string& ledger, const std::vector<Increment>& counts) {
  if (counts.empty()) return;
  if (const auto counters = Counters::open(ledger)) counters->add(counts);
}

void count_call(std::string_view stage, Call& call, const fabric::Result<void>& result) {
  const std::string label(stage);
  if (!result) {
    const FailureReason reason = failure_reason(call.phase, result.error().code);
    call.counts.push_back({kFailuresTotal, {{"stage", label}, {"reason", std::string(to_string(reason))}}});
  }
  if (call.counts.empty()) return;
  for (Increment& increment : observed_stage(label, result.has_value(), call.timing.total()))
    call.counts.push_back(std::move(increment));
  for (const auto& [step, microseconds] : call.timing.steps()) {
    const Labels labels{{"stage", label}, {"step", step}};
    call.counts.push_back({kDurationTotal, labels, microseconds});
    call.counts.push_back({kDurationCount, labels});
  }
  add_counts(call.options.ledger, call.counts);
}

}  // namespace hook
