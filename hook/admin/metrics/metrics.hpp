// Metrics of the hook in Prometheus' text format 0.0.4, for the textfile collector of node_exporter or another scraper.
//
// Counters are stored in the file DIR/metrics (DIR: the ledger's directory), because no process of the hook lives long
// enough to count. Grants are read from the ledger for each scrape, without a check whether their owners still exist
// (Ledger::for_each_recorded_at()). Series:
//
//   rdma_hook_grants_total{engine,mode}                          counter: containers with a grant; mode: mode_of()
//   rdma_hook_returns_total{reason}                              counter: released grants; reason: ReleaseReason
//   rdma_hook_failures_total{stage,reason}                       counter; reason: FailureReason
//   rdma_hook_duration_microseconds_total{stage,step}            counter: time; mean: divide by the next series
//   rdma_hook_duration_count{stage,step}                         counter
//   rdma_hook_stage_duration_microseconds{stage,result}          histogram; result: done, failed
//   rdma_hook_holders{hca,mode}                                  gauge: grants of the HCA
//   rdma_hook_units{hca,mode}                                    gauge: granted units
//   rdma_hook_limit{hca,mode}                                    gauge: unit limit, from the newest grant
//   rdma_hook_grant_info{container,grant,hca,netns} 1            gauge; grant: shown_key(), as the log's `key`; netns:
//                                                                path, empty if a container owns the grant; labels
//                                                                namespace, pod, container_name in Kubernetes
//   rdma_hook_claims                                             gauge: prepared claims of Dynamic Resource Allocation
//   rdma_hook_pool_missing{pool}                                 gauge: HCAs that the pool lacks of "expect"; only
//                                                                with "expect", and only if the number is certain
//   rdma_port_counter{hca,port,counter}                          counter of the port, for all owners
//
// The number of series depends on the number of HCAs. Only rdma_hook_grant_info has a series for each container; it is
// optional.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "hook/admin/metrics/counters.hpp"
#include "hook/grant/pool_counts.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

// Returns the increments for one call of a stage ("createRuntime"). done: the call succeeded. In DIR/metrics, buckets
// are not cumulative, so that a call changes only one of them; with_histograms() adds them up.
std::vector<Increment> observed_stage(std::string_view stage, bool done, std::uint64_t microseconds);

// Converts the counters of the histogram to Prometheus' form: cumulative buckets, _sum and _count. Pure.
std::vector<Sample> with_histograms(std::vector<Sample> counted);

// Returns the text with HELP and TYPE once per name, sorted by name and labels. Only the first of several samples with
// equal name and labels counts. Pure.
std::string prometheus_text(std::vector<Sample> samples);

// Sums over the HCAs of all grants.
class Held {
 public:
  void add(const Grant& grant);
  // rdma_hook_holders, rdma_hook_units, rdma_hook_limit; rdma_hook_claims if there is a claim
  std::vector<Sample> samples() const;
  std::vector<std::string> hcas() const;  // names of all granted HCAs, each once

 private:
  struct Sum {
    std::uint64_t grants = 0;
    std::uint64_t units = 0;
    std::optional<unsigned> limit;
    std::int64_t limit_since = 0;
  };
  std::map<std::pair<std::string, Mode>, Sum> sums_;
  std::uint64_t claims_ = 0;
};

// Names of a container in Kubernetes. The names are empty if the container is not in a pod, or if its pod is unknown.
struct PodNames {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  friend bool operator==(const PodNames&, const PodNames&) = default;
};

// Finds the Kubernetes names of containers with grants, in the config.json that the engine wrote into each bundle.
// Does not read a config.json again after a success. rdma-nri records no bundle in a grant. For such containers, reads
// the default locations of containerd and CRI-O. Containers of Podman, Docker and runc get no names, because an image
// could have set the annotations that have the names (pod_identity()).
class GrantNames {
 public:
  explicit GrantNames(std::string root) : root_(std::move(root)) {}
  PodNames of(const GrantUser& user);
  // Forgets the names of each container for which of() was not called since the last forget_others().
  void forget_others();

 private:
  struct Known {
    PodNames names;
    bool is_used = true;
  };
  std::string root_;
  std::map<std::string, Known> known_;  // the known names, by bundle
};

// grant_info_head() returns HELP and TYPE of rdma_hook_grant_info; grant_info() returns the series of one grant. Pure,
// except for `names`.
std::string grant_info_head();
// A function that returns the Kubernetes names of a user's container. With an empty function, grant_info() adds no
// names.
using NamesOf = std::function<PodNames(const GrantUser& user)>;
std::string grant_info(const Grant& grant, const NamesOf& names = {});

// Returns rdma_hook_pool_missing of each pool.
std::vector<Sample> pool_samples(const std::vector<PoolCount>& pools);

using Write = std::function<void(const std::string& text)>;

// Writes rdma_port_counter for these HCAs, one HCA at a time, from ports/N/counters/ and ports/N/hw_counters/. root:
// prefix of /sys. Omits counters that cannot be read or are not numbers, and HCAs that are not visible in this network
// namespace. Source: kernel Documentation/ABI/stable/sysfs-class-infiniband, 6.12.
void write_port_counters(const std::string& root, const std::vector<std::string>& hcas, const Write& write);

// Writes all series except rdma_hook_grant_info. Only reads the ledger. Without DIR/metrics there are no counters.
// Errors: those of Counters::open_to_read() and read().
Result<void> write_metrics(const std::string& ledger_directory, const Held& held, const std::string& root,
                           const Write& write);

}  // namespace hook
