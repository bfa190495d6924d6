// What the hook did and who holds what, as Prometheus reads it (text exposition format 0.0.4): for the textfile
// collector of node_exporter, or any other scraper.
//
// What happened is counted in DIR/metrics, because no process lives long enough to count; what is now is read when it
// is asked for. Series:
//
//   rdma_hook_grants_total{engine,mode}                          counter: containers, once each; mode: mode_of()
//   rdma_hook_returns_total{reason}                              counter: grants, a pod's once; reason: ReturnReason
//   rdma_hook_failures_total{stage,reason}                       counter; reason: FailureReason
//   rdma_hook_duration_microseconds_total{stage,step}            counter; divided by the next: the mean
//   rdma_hook_duration_count{stage,step}                         counter
//   rdma_hook_stage_duration_microseconds{stage,result}          histogram; result: done, failed
//   rdma_hook_holders{hca}                                       gauge: grants with it
//   rdma_hook_grant_info{container,grant,hca,netns} 1            gauge; netns: its path, empty for a container's grant
//   rdma_port_counter{hca,port,counter,container,grant}          counter: the port's, not the container's share of it
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
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

// Pure: rdma_hook_holders and rdma_hook_grant_info. Vanished grants hold nothing.
std::vector<Sample> grant_samples(const std::vector<Grant>& grants);

// rdma_port_counter of the HCAs that grants hold, from ports/N/counters/ and ports/N/hw_counters/ (kernel
// Documentation/ABI/stable/sysfs-class-infiniband, 6.12); each HCA is read once, and listed for each container that has
// it. root: in front of /sys. Left out is what cannot be read, is no number, or is not visible in this network
// namespace (an HCA that was moved).
std::vector<Sample> port_samples(const std::string& root, const std::vector<Grant>& grants);

// All of it; writes nothing. Nothing counted: no counters. Errors: as Counters::open_to_read() and read().
fabric::Result<std::string> metrics_text(const std::string& ledger_directory, const std::vector<Grant>& grants,
                                         const std::string& root);

}  // namespace hook
