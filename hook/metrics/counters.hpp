// What happened, counted in DIR/metrics. The series: metrics.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

inline constexpr std::string_view kGrantsTotal = "rdma_hook_grants_total";
inline constexpr std::string_view kReturnsTotal = "rdma_hook_returns_total";
inline constexpr std::string_view kFailuresTotal = "rdma_hook_failures_total";
inline constexpr std::string_view kDurationTotal = "rdma_hook_duration_microseconds_total";
inline constexpr std::string_view kDurationCount = "rdma_hook_duration_count";

using Labels = std::map<std::string, std::string>;

struct Sample {
  enum class Type { kCounter, kGauge, kHistogram };
  std::string name;    // [a-zA-Z_:][a-zA-Z0-9_:]*; of a histogram with _bucket, _sum or _count
  Labels labels = {};  // names: [a-zA-Z_][a-zA-Z0-9_]*; values: any text
  Type type = Type::kGauge;
  std::string help = {};  // may be empty
  std::uint64_t value = 0;
};

struct Increment {
  std::string_view name;
  Labels labels;
  std::uint64_t delta = 1;
};

// DIR/metrics, 0600: records of fixed size, changed in place under flock. The lock belongs to the open file: a child
// made by fork() opens its own. What is counted goes with the directory, as a counter of Prometheus may.
class Counters {
 public:
  // The file is made if it is missing, the directory is not. Errors: the directory cannot be opened (ENOENT: it does
  // not exist), or something that is not ours is in the file's place.
  static Result<Counters> open(const std::string& directory);
  // For read() alone: on a file system that may be read-only. Errors: as open(); ENOENT also where nothing is counted.
  static Result<Counters> open_to_read(const std::string& directory);

  // Best effort: never fails, waits 10 ms at most for others. Not counted is what comes when they take longer, when 512
  // series exist, or when a series' names and values are longer than 120 bytes together. In values, characters but
  // printable ASCII become '_'. A file that is damaged starts anew. One call for several costs far less than
  // several.
  void add(const std::vector<Increment>& increments) const;

  // In the order of their appearance. A damaged file has none. Errors: it cannot be read, or is locked for too long.
  Result<std::vector<Sample>> read() const;

 private:
  Counters(fabric::UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  static Result<Counters> open(const std::string& directory, int flags);
  fabric::UniqueFd fd_;
  std::string path_;  // for messages
};

}  // namespace hook
