// Counters in DIR/metrics. metrics.hpp describes the series.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace hook {

struct LedgerDirectory;

inline constexpr std::string_view kGrantsTotal = "rdma_hook_grants_total";
inline constexpr std::string_view kReleasesTotal = "rdma_hook_returns_total";
inline constexpr std::string_view kFailuresTotal = "rdma_hook_failures_total";
inline constexpr std::string_view kDurationTotal = "rdma_hook_duration_microseconds_total";
inline constexpr std::string_view kDurationCount = "rdma_hook_duration_count";

using Labels = std::map<std::string, std::string>;

struct Sample {
  enum class Type { kCounter, kGauge, kHistogram };
  std::string name;    // [a-zA-Z_:][a-zA-Z0-9_:]*; a histogram's name ends with _bucket, _sum or _count
  Labels labels = {};  // names: [a-zA-Z_][a-zA-Z0-9_]*; values: any text
  Type type = Type::kGauge;
  std::string help = {};  // text for HELP; may be empty
  std::uint64_t value = 0;
};

struct Increment {
  std::string_view name;
  Labels labels;
  std::uint64_t delta = 1;
};

// The file DIR/metrics (hook/ledger/ledger.hpp). Its lock belongs to the open file, so a child made by fork(2) must
// open the file itself. After a boot the counters start from zero, which Prometheus permits.
class Counters {
 public:
  // Opens the file and creates it if it is missing. Errors: the file is not a regular file of root or of the caller.
  static Result<Counters> open(const LedgerDirectory& directory);
  // Opens the file after its directory, which it does not create. Errors: the directory cannot be opened (ENOENT: it
  // does not exist); the file is not a regular file of root or of the caller.
  static Result<Counters> open(const std::string& directory);
  // Opens the file only for read(), also on a read-only file system. Errors: those of open(); ENOENT if nothing was
  // counted.
  static Result<Counters> open_to_read(const std::string& directory);

  // Adds the increments in one write. Best effort: returns no error, and waits at most 10 ms for other processes. Drops
  // increments if the lock takes longer, if 512 series exist, or if the name and labels of a series exceed 120 bytes.
  // Replaces characters of values other than printable ASCII by '_'. A damaged file starts again from zero.
  void add(const std::vector<Increment>& increments) const;

  // Returns the samples in the order of their first increment. A damaged file has none. Errors: the file cannot be
  // read, or is locked for too long.
  Result<std::vector<Sample>> read() const;

 private:
  Counters(base::UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  static Result<Counters> open(const LedgerDirectory& directory, int flags);
  base::UniqueFd fd_;
  std::string path_;  // path of the file, for messages
};

}  // namespace hook
