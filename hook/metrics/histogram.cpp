#include "hook/metrics/histogram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "fabric/text.hpp"

namespace hook {
namespace {

constexpr std::string_view kDurationName = "rdma_hook_stage_duration_microseconds";
constexpr std::string_view kBucket = "rdma_hook_stage_duration_microseconds_bucket";
constexpr std::string_view kSum = "rdma_hook_stage_duration_microseconds_sum";
constexpr std::string_view kDurationHelp = "How long stages took that gave, returned or failed.";

// From a millisecond, about what device nodes take, to the ten seconds that a lock is waited for.
constexpr std::array<std::uint64_t, 13> kBounds = {
    1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000};

// The bucket of what is above all bounds is the last.
using Buckets = std::array<std::uint64_t, kBounds.size() + 1>;

std::string bound_text(std::size_t bucket) {
  return bucket < kBounds.size() ? fmt::format("{}", kBounds[bucket]) : "+Inf";
}

struct Series {
  Buckets buckets{};
  std::uint64_t sum = 0;
};

// False: not of this histogram.
bool take(const Sample& sample, std::map<Labels, Series>& all) {
  if (sample.name != kBucket && sample.name != kSum) return false;
  Labels labels = sample.labels;
  const auto bound = labels.extract("le");
  Series& series = all[labels];
  if (bound.empty()) {
    if (sample.name == kSum) series.sum += sample.value;
    return true;
  }
  const auto microseconds = fabric::parse_number<std::uint64_t>(bound.mapped());
  const auto* at = microseconds ? std::lower_bound(kBounds.begin(), kBounds.end(), *microseconds) : kBounds.end();
  series.buckets[static_cast<std::size_t>(at - kBounds.begin())] += sample.value;
  return true;
}

Sample make_sample(std::string_view suffix, Labels labels, std::uint64_t value) {
  return {.name = std::string(kDurationName) + std::string(suffix),
          .labels = std::move(labels),
          .type = Sample::Type::kHistogram,
          .help = std::string(kDurationHelp),
          .value = value};
}

void append(std::vector<Sample>& samples, const Labels& labels, const Series& series) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < series.buckets.size(); ++i) {
    total += series.buckets[i];
    Labels with_bound = labels;
    with_bound["le"] = bound_text(i);
    samples.push_back(make_sample("_bucket", std::move(with_bound), total));
  }
  samples.push_back(make_sample("_sum", labels, series.sum));
  samples.push_back(make_sample("_count", labels, total));
}

}  // namespace

std::vector<Increment> observed_stage(std::string_view stage, bool done, std::uint64_t microseconds) {
  Labels labels{{"stage", std::string(stage)}, {"result", done ? "done" : "failed"}};
  Labels bucket = labels;
  const auto* at = std::lower_bound(kBounds.begin(), kBounds.end(), microseconds);
  bucket["le"] = bound_text(static_cast<std::size_t>(at - kBounds.begin()));
  return {{kBucket, std::move(bucket)}, {kSum, std::move(labels), microseconds}};
}

std::vector<Sample> with_histograms(std::vector<Sample> counted) {
  std::map<Labels, Series> all;
  std::erase_if(counted, [&](const Sample& sample) { return take(sample, all); });
  for (const auto& [labels, series] : all)
    append(counted, labels, series);
  return counted;
}

}  // namespace hook
