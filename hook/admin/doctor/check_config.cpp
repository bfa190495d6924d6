#include "hook/admin/doctor/checks.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/plan/pools.hpp"
#include "hook/rails/address/node_ranges.hpp"
#include "hook/request/parsers.hpp"

namespace hook {
namespace {

using fabric::Address;

// Returns a warning if the node cannot set the RDMA limits of the administrator's config.json, or if this is unknown.
// Without the limits, containers start all the same.
std::vector<Finding> findings_of_controller(const Result<RdmaController>& controller) {
  if (!controller) return {{Grade::kWarning, "limits", controller.error().message, controller.error().hint}};
  const auto none = no_limits(*controller);
  if (!none) return {};
  return {{Grade::kWarning, "limits", fmt::format("{}: hca_objects and hca_handles have no effect", none->why),
           none->remedy}};
}

constexpr const char* kObject = "node_index";

// Returns the finding for an error of the node's index. The finding is `broken`, because the hook refuses each
// container that requests the network.
Finding broken(std::string object, const Error& error) {
  return {Grade::kBroken, std::move(object), error.message, base::remedy_of(error)};
}

// Checks this node's part of the network's address ranges, for each rail in a pool: an index that comes from an address
// can differ between rails.
std::vector<Finding> check_by_address(const fabric::Inventory& inventory, const Config& config,
                                      const Network& network) {
  std::vector<Finding> findings;
  const NodeMap map(inventory, config);
  for (const NodeHca* node : map.by_rail()) {
    if (!node->pool || node->pool->network != network.name || !node->netdev) continue;
    const auto ranges =
        node_ranges(config, network, node->rail, [&] { return addresses_on(inventory.netdevs, *node->netdev); });
    if (!ranges) findings.push_back(broken(fmt::format("{} ({})", *node->netdev, node->name()), ranges.error()));
  }
  return findings;
}

// Checks a node's index that does not come from an address: such an index is the same for all rails, so only the first
// error is returned.
std::optional<Finding> check_number(const Config& config, const Network& network) {
  for (const AddressRange& range : network.ranges) {
    if (!range.per_node) continue;
    const auto ranges = node_ranges(config, network, range.rail.value_or(0), [] { return std::vector<Address>(); });
    if (!ranges) return broken(kObject, ranges.error());
  }
  for (const auto* range : {&network.vf_macs, &network.vf_guids}) {
    if (!*range || !(*range)->per_node) continue;
    const auto index = node_number(config);
    if (!index) return broken(kObject, index.error());
    if (const auto slice = slice_of(**range, *index); !slice) return broken(kObject, slice.error());
  }
  return std::nullopt;
}

}  // namespace

std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<Result<RdmaController>>& controller) {
  std::vector<Finding> findings;
  // Without pools in config.json, the administrator has configured no sharing of HCAs, so limits are not expected.
  if (config.pools.empty()) return findings;
  std::vector<std::string> seen;
  const NodeMap map(inventory, config);
  for (const NodeHca* node : map.by_rail()) {
    if (!node->pool || std::ranges::find(seen, node->pool->name) != seen.end()) continue;
    seen.push_back(node->pool->name);
    if (node->pool->rdma_limits.objects || !is_shared(*node->pool)) continue;
    findings.push_back({Grade::kWarning, fmt::format("pool {}", node->pool->name),
                        "one container can use up all RDMA objects of a shared HCA",
                        "add \"limits\": {\"hca_objects\": N} to the pool; for N see rdma-init.json(5)"});
  }
  if (controller && limits_rdma(config)) {
    for (Finding& finding : findings_of_controller(*controller))
      findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> check_expected(const std::vector<PoolCount>& pools) {
  std::vector<Finding> findings;
  for (const PoolCount& pool : pools) {
    if (pool.missing() == 0) continue;
    if (pool.is_lost()) {
      findings.push_back({Grade::kBroken, fmt::format("pool {}", pool.pool),
                          fmt::format("the node has none of {} expected HCAs, and had some before", pool.expected),
                          "load their driver or make their virtual functions (`lspci`, `dmesg`); if the node has lost "
                          "them for good, remove /etc/rdma-init/cluster/pools-seen.json"});
      continue;
    }
    const std::string of_them =
        pool.unusable.empty() ? "" : "; without a device node or an ACTIVE port: " + some_of(pool.unusable);
    findings.push_back({Grade::kBroken, fmt::format("pool {}", pool.pool),
                        fmt::format("{} of {} expected HCAs are usable{}", pool.usable, pool.expected, of_them),
                        "repair the missing HCA (`lspci`, `dmesg`, its cable), or correct \"expect\" in config.json"});
  }
  return findings;
}

std::vector<Finding> check_vf_ranges(const fabric::Inventory& inventory, const Config& config) {
  std::vector<Finding> findings;
  const NodeMap map(inventory, config);
  for (const auto& [name, network] : config.networks) {
    const auto functions = std::ranges::count_if(map.hcas(), [&, &wanted = name](const NodeHca& node) {
      return node.hca->physfn && node.pool && node.pool->network == wanted;
    });
    for (const auto* range : {&network.vf_macs, &network.vf_guids}) {
      if (!*range || functions == 0) continue;
      // The last index is compared instead of the number of addresses: for a range of all 64-bit values, that number
      // overflows.
      const std::uint64_t last = (*range)->per_node ? *(*range)->per_node - 1 : (*range)->to - (*range)->from;
      if (last >= static_cast<std::uint64_t>(functions) - 1) continue;
      findings.push_back({Grade::kWarning, fmt::format("network {}", name),
                          fmt::format("the range {} has only {} entries, but a node has {} virtual functions",
                                      to_string(**range), last + 1, functions),
                          (*range)->per_node ? "raise \"per_node\"" : "widen the range"});
    }
  }
  return findings;
}

std::vector<Finding> check_node_index(const fabric::Inventory& inventory, Config config, const NodeIndexSources& from) {
  std::vector<Finding> findings;
  // Only ranges with `per_node` need the node's index.
  const auto is_cut = [](const auto& network) {
    const auto is_sliced = [](const auto& range) { return range && range->per_node; };
    return is_sliced(network.second.vf_macs) || is_sliced(network.second.vf_guids) ||
           std::ranges::any_of(network.second.ranges,
                               [](const AddressRange& range) { return range.per_node.has_value(); });
  };
  if (!config.node_index || std::ranges::none_of(config.networks, is_cut)) return findings;
  const NodeIndex::By by = config.node_index->by;
  // Adds a note and not a warning: the hook on the node can find the index although this call of doctor cannot.
  const auto unknown = [&](const char* why) {
    return std::vector<Finding>{{Grade::kNote, kObject, fmt::format("cannot check this node's index: {}", why), ""}};
  };
  if (by == NodeIndex::By::kFile) {
    if (!from.root) return unknown("a snapshot does not have the file");
    config.node_index->file = *from.root + config.node_index->file;
  }
  if (config.node_index->is_by_name() && !from.name) return unknown("NODE_NAME is not set for this process");
  if (by == NodeIndex::By::kAddress && !from.knows_addresses) return unknown("a file tree has no addresses of netdevs");
  if (by == NodeIndex::By::kName && has_several_numbers(*from.name))
    findings.push_back({Grade::kWarning, kObject,
                        fmt::format("the last number of NODE_NAME `{}` is the index, and the numbers before it do not "
                                    "count",
                                    base::printable(*from.name)),
                        kSeveralNumbersRemedy});
  for (const auto& entry : config.networks) {
    auto of_network =
        by == NodeIndex::By::kAddress ? check_by_address(inventory, config, entry.second) : decltype(findings)();
    if (auto wrong = by == NodeIndex::By::kAddress ? std::nullopt : check_number(config, entry.second))
      of_network.push_back(std::move(*wrong));
    std::ranges::move(of_network, std::back_inserter(findings));
  }
  return findings;
}

}  // namespace hook
