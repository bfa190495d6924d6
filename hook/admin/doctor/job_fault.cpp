#include "hook/admin/doctor/job_fault.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/file.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/pool_counts.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

using fabric::Inventory;

// The HCAs that jobs use, which are the HCAs of pools. An HCA without a pool, such as a front-end NIC, breaks no job.
struct JobHcas {
  Inventory inventory;
  bool known = true;  // the parameter hcas_known of job_fault()
};

JobHcas job_hcas(const Inventory& inventory, const Config& config) {
  JobHcas jobs;
  std::set<std::string> names;
  const NodeMap map(inventory, config);
  for (const NodeHca& node : map.hcas()) {
    if (node.pool_unread) jobs.known = false;
    if (!node.pool) continue;
    names.insert(node.name());
    jobs.known = jobs.known && std::ranges::all_of(node.hca->ports, [](const fabric::Port& port) {
                   return std::holds_alternative<std::string>(port.state);
                 });
  }
  jobs.inventory = inventory;
  std::erase_if(jobs.inventory.hcas, [&](const fabric::Hca& hca) { return !names.contains(hca.name); });
  return jobs;
}

// Returns whether an HCA may be granted: a renamed HCA is found by its device.
bool may_be_granted(const GrantedHcas& granted, const std::string& name, const HcaDevices& devices) {
  const auto device = devices.find(name);
  return !granted.all || granted.names.contains(name) ||
         (device != devices.end() && granted.devices.contains(device->second));
}

// Returns the first broken finding of a check. If the check has more of them, its object has their number.
std::optional<Finding> first_broken(const Check& check) {
  const auto is_broken = [](const Finding& one) { return one.grade == Grade::kBroken; };
  const auto found = std::ranges::find_if(check.findings, is_broken);
  if (found == check.findings.end()) return std::nullopt;
  Finding first = *found;
  const auto more = std::ranges::count_if(check.findings, is_broken) - 1;
  if (more > 0) first.object += fmt::format(" and {} more", more);
  return first;
}

// Returns the fault of the first pool with fewer usable HCAs than "expect". Numbers that are not certain are no fault.
std::optional<Finding> incomplete_pool(const NodeSettings& node, const Config& config) {
  const auto counts = read_pool_counts(node, config);
  const auto findings = counts ? check_expected(*counts) : std::vector<Finding>();
  return findings.empty() ? std::nullopt : std::optional(findings.front());
}

Result<std::optional<Finding>> read_job_fault(const NodeSettings& node, const Config& config) {
  const Inventory inventory = TRY(read_whole_node(config, node, {.link_layer = true, .netdevs = true}));
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  const bool has_hcas = !inventory.hcas.empty();
  auto [jobs, known] = job_hcas(inventory, config);
  if (has_hcas && jobs.hcas.empty()) return incomplete_pool(node, config);
  read_phys_states(node.root, jobs);
  std::vector<std::string> names;
  for (const fabric::Hca& hca : jobs.hcas)
    names.push_back(hca.name);
  const bool hidden = inventory.netns_mode == fabric::NetnsMode::kExclusive &&
                      may_hide_hca(fabric::read_kernel_facts(node.root, inventory), inventory);
  const auto closed = may_be_closed_by_containers(jobs, read_granted(node), devices_of(names, jobs, node.root).devices);
  // A fault of a single port or module has the better remedy, so the number of HCAs comes last.
  auto fault = job_fault(fabric::read_kernel_facts(node.root, jobs), jobs, config, known && !hidden, closed);
  return fault ? std::move(fault) : incomplete_pool(node, config);
}

bool is_unloaded(const fabric::HalfDriven& function) {
  return function.loaded == base::Attr<bool>(false);
}

}  // namespace

std::set<std::string> may_be_closed_by_containers(const Inventory& jobs, const GrantedHcas& granted,
                                                  const HcaDevices& devices) {
  // Words of the kernel: phys_state_to_str() of drivers/infiniband/core/sysfs.c, Linux 6.12.
  const auto is_disabled = [](const fabric::Port& port) {
    return !port.is_active() && base::value_or(port.phys_state, std::string()).ends_with("Disabled");
  };
  std::set<std::string> closed;
  for (const fabric::Hca& hca : jobs.hcas) {
    for (const fabric::Port& port : hca.ports)
      if (is_disabled(port) && may_be_granted(granted, hca.name, devices)) closed.insert(port_object(hca, port));
  }
  return closed;
}

bool may_hide_hca(const fabric::KernelFacts& facts, const Inventory& inventory) {
  return inventory.netns_mode == fabric::NetnsMode::kExclusive &&
         std::ranges::any_of(facts.half_driven, [](const auto& one) { return one.always && !is_unloaded(one); });
}

std::optional<Finding> job_fault(fabric::KernelFacts facts, const Inventory& jobs, const Config& config,
                                 bool hcas_known, const std::set<std::string>& excused) {
  // Without pools it is unknown whether jobs of this node use its HCAs.
  if (config.pools.empty()) return std::nullopt;
  // A NIC without an HCA is a fault only if the node has no other HCA, the NIC's driver always has RDMA, and the module
  // is certainly not loaded.
  std::erase_if(facts.half_driven,
                [&](const auto& one) { return !jobs.hcas.empty() || !one.always || !is_unloaded(one); });
  if (jobs.hcas.empty() && facts.half_driven.empty()) return std::nullopt;
  // A missing rdma_cm is no fault: NCCL and UCX's verbs transports work without it.
  std::erase_if(facts.nodes, [](const fabric::ExpectedNode& node) { return node.path == "/dev/infiniband/rdma_cm"; });
  auto checks = check_kernel(facts, jobs, config);
  if (hcas_known) std::ranges::move(check_rails(jobs, config, {}), std::back_inserter(checks));
  // A full GID table breaks only new netdevs, and a job of a batch system adds none.
  for (Check& check : checks) {
    if (check.name != "modules" && check.name != "nodes" && check.name != "ports") continue;
    std::erase_if(check.findings, [&](const Finding& one) { return excused.contains(one.object); });
    if (auto fault = first_broken(check)) return fault;
  }
  return std::nullopt;
}

Result<std::optional<Finding>> find_job_fault(const NodeSettings& node) {
  constexpr auto kTransient = std::chrono::seconds(1);
  const bool default_paths = !node.config.file_must_exist && !node.root.empty();
  const Config config = TRY(read_config(default_paths ? config_paths_below(node.root) : node.config));
  if (!TRY(read_job_fault(node, config))) return std::optional<Finding>();
  std::this_thread::sleep_for(kTransient);
  return read_job_fault(node, config);
}

std::string drain_reason(const Finding& fault) {
  std::string line = fmt::format("rdma: {}: {}; remedy: {}", fault.object, fault.message, fault.remedy);
  // The reason reaches scripts of the site, so characters that a shell executes or a terminal obeys are removed.
  std::ranges::replace(line, '`', '\'');
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  if (line.size() > kLongestReason) line = line.substr(0, kLongestReason - 3) + "...";
  return line;
}

}  // namespace hook
