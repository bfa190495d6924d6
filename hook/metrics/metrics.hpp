// What the hook did and who holds what, as Prometheus reads it (text exposition format 0.0.4): for the textfile
// collector of node_exporter, or any other scraper.
//
// What happened is counted in DIR/metrics, because no process lives long enough to count; grants are read when they are
// asked for, as the ledger records them: no owner is judged gone (Ledger::for_each_recorded_at()). Series:
//
//   rdma_hook_grants_total{engine,mode}                          counter: containers, once each; mode: mode_of()
//   rdma_hook_returns_total{reason}                              counter: grants, a pod's once; reason: ReturnReason
//   rdma_hook_failures_total{stage,reason}                       counter; reason: FailureReason
//   rdma_hook_duration_microseconds_total{stage,step}            counter; divided by the next: the mean
//   rdma_hook_duration_count{stage,step}                         counter
//   rdma_hook_stage_duration_microseconds{stage,result}          histogram; result: done, failed
//   rdma_hook_holders{hca,mode}                                  gauge: grants with it
//   rdma_hook_units{hca,mode}                                    gauge: what they hold of it, as limits count
//   rdma_hook_limit{hca,mode}                                    gauge: most units, as the newest grant was told
//   rdma_hook_grant_info{container,grant,hca,netns} 1            gauge; grant: shown_key(), as the log's `key`; netns:
//                                                                its path, empty for a container's grant; a pod's
//                                                                has namespace, pod, container_name too
//   rdma_port_counter{hca,port,counter}                          counter: the port's, whoever holds it
//
// Their number follows from that of the HCAs; only rdma_hook_grant_info is one for each container, and has to be asked
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/metrics/counters.hpp"

namespace hook {

// One call more of that stage ("createRuntime"), which ended well or did not: what is to be counted for the histogram.
// In DIR/metrics each call is in one bucket only, which is one series to change; what Prometheus reads adds them up.
std::vector<Increment> observed_stage(std::string_view stage, bool done, std::uint64_t microseconds);

// Pure: the counters with the histogram's as Prometheus wants them: buckets that hold all below them, _sum and _count.
std::vector<Sample> with_histograms(std::vector<Sample> counted);

// Pure: HELP and TYPE once a name, names and label sets in order. Of samples with equal names and labels the first.
std::string prometheus_text(std::vector<Sample> samples);

// The HCAs that grants hold, added up grant by grant.
class Held {
 public:
  void add(const Grant& grant);
  std::vector<Sample> samples() const;    // rdma_hook_holders, rdma_hook_units, rdma_hook_limit
  std::vector<std::string> hcas() const;  // each once

 private:
  struct Sum {
    std::uint64_t holders = 0;
    std::uint64_t units = 0;
    std::optional<unsigned> limit;
    std::int64_t limit_since = 0;
  };
  std::map<std::pair<std::string, Mode>, Sum> sums_;
};

// All empty: of no pod, or not to be found out.
struct PodNames {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  friend bool operator==(const PodNames&, const PodNames&) = default;
};

// What people call the containers of grants, as their engine wrote it into config.json of the bundle. Reads each
// container's once. Of a user without a bundle, which rdma-nri does not know, it looks where containerd and
// CRI-O have theirs by default. What an engine that is not of Kubernetes made has no names: an image could have chosen
// them.
class GrantNames {
 public:
  explicit GrantNames(std::string root) : root_(std::move(root)) {}
  PodNames of(const GrantUser& user);
  // Forgets the containers that nobody asked for since the last call.
  void forget_others();

 private:
  struct Known {
    PodNames names;
    bool is_used = true;
  };
  std::string root_;
  std::map<std::string, Known> known_;  // by the bundle
};

// Pure: HELP and TYPE of rdma_hook_grant_info, and what one grant adds.
std::string grant_info_head();
// names: of a user's container; not called where it is not asked for.
using NamesOf = std::function<PodNames(const GrantUser& user)>;
std::string grant_info(const Grant& grant, const NamesOf& names = {});

using Write = std::function<void(const std::string& text)>;

// rdma_port_counter of these HCAs, from ports/N/counters/ and ports/N/hw_counters/ (kernel
// Documentation/ABI/stable/sysfs-class-infiniband, 6.12), HCA by HCA. root: in front of /sys. Left out is what cannot
// be read, is no number, or is not visible in this network namespace (an HCA that was moved).
void write_port_counters(const std::string& root, const std::vector<std::string>& hcas, const Write& write);

// All but rdma_hook_grant_info; the ledger is only read. Nothing counted: no counters. Errors: as
// Counters::open_to_read() and read().
Result<void> write_metrics(const std::string& ledger_directory, const Held& held, const std::string& root,
                           const Write& write);

}  // namespace hook
