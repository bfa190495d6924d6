// What the hook did and who holds what, as Prometheus reads it (text exposition format 0.0.4): for the textfile
// collector of node_exporter, or anybody's scraper.
//
// What happened is counted in DIR/metrics, because no process lives long enough to count; what is now is read when it
// is asked for. Series:
//
//   rdma_hook_grants_total{engine,mode}                          counter
//   rdma_hook_returns_total                                      counter
//   rdma_hook_failures_total{stage,reason}                       counter; reason: FailureReason
//   rdma_hook_duration_microseconds_total{stage,step}            counter; divided by the next: the mean
//   rdma_hook_duration_count{stage,step}                         counter
//   rdma_hook_holders{hca}                                       gauge: grants with it
//   rdma_hook_grant_info{container,grant,hca,netns} 1            gauge; netns: its path, empty for a container's grant
//   rdma_port_counter{hca,port,counter,container,grant}          counter: the port's, not the container's share of it
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

inline constexpr std::string_view kGrantsTotal = "rdma_hook_grants_total";
inline constexpr std::string_view kReturnsTotal = "rdma_hook_returns_total";
inline constexpr std::string_view kFailuresTotal = "rdma_hook_failures_total";
inline constexpr std::string_view kDurationTotal = "rdma_hook_duration_microseconds_total";
inline constexpr std::string_view kDurationCount = "rdma_hook_duration_count";

// What a failure was about: few words, for each is a series.
enum class FailureReason { kRefused, kConfig, kLedger, kNetwork, kDevices, kCgroup, kInternal };
// "refused", "config", ...
std::string_view to_string(FailureReason reason);

using Labels = std::map<std::string, std::string>;

struct Sample {
  enum class Type { kCounter, kGauge };
  std::string name;    // [a-zA-Z_:][a-zA-Z0-9_:]*
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
  // The file is made if it is missing, the directory is not. Errors: the directory (ENOENT: there is none), or
  // something that is not ours in the file's place.
  static fabric::Result<Counters> open(const std::string& directory);

  // Best effort: never fails, waits 10 ms at most for others. Not counted is what comes when they take longer, when 512
  // series exist, or when a series' names and values are longer than 120 bytes together. In values, characters but
  // printable ASCII become '_'. A file that is damaged starts anew. One call for several costs far less than
  // several.
  void add(const std::vector<Increment>& increments) const;
  void add(std::string_view name, const Labels& labels, std::uint64_t delta = 1) const;

  // In the order of their appearance. A damaged file has none. Errors: it cannot be read, or is locked for too long.
  fabric::Result<std::vector<Sample>> read() const;

 private:
  explicit Counters(fabric::UniqueFd fd) : fd_(std::move(fd)) {}
  fabric::UniqueFd fd_;
};

// Pure: HELP and TYPE once a name, names and label sets in order. Of samples with equal names and labels the first.
std::string prometheus_text(std::vector<Sample> samples);

// Pure: rdma_hook_holders and rdma_hook_grant_info. Vanished grants hold nothing.
std::vector<Sample> grant_samples(const std::vector<Grant>& grants);

// rdma_port_counter of the HCAs that grants hold, from ports/N/counters/ and ports/N/hw_counters/ (kernel
// Documentation/ABI/stable/sysfs-class-infiniband, 6.12); each HCA is read once, and listed for each container that has
// it. root: in front of /sys. Left out is what cannot be read, is no number, or is not visible in this network
// namespace (an HCA that was moved).
std::vector<Sample> port_samples(const std::string& root, const std::vector<Grant>& grants);

// All of it. No ledger directory: no counters. Errors: as Counters::open() and read().
fabric::Result<std::string> metrics_text(const std::string& ledger_directory, const std::vector<Grant>& grants,
                                         const std::string& root);

}  // namespace hook
