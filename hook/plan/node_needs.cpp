#include "hook/plan/node_needs.hpp"

#include <algorithm>
#include <utility>

#include "hook/plan/match.hpp"

namespace hook {
namespace {

using fabric::Selector;

bool adds_network(const Request& request, const Config& config) {
  return names_network(request) ||
         std::ranges::any_of(config.pools, [](const Pool& pool) { return pool.network.has_value(); });
}

bool adds_rails(const Request& request, const Config& config) {
  return adds_network(request, config) &&
         (may_be(Mode::kShared, request, config) || may_be(Mode::kSharedMulti, request, config) ||
          may_be(Mode::kExclusive, request, config));
}

// Returns whether a netdev that moves to the container can keep the addresses that it has on the node, because the
// network has no addresses for its rail.
bool may_bring_addresses(const Request& request, const Config& config) {
  const auto is_for_all = [](const AddressRange& range) { return !range.rail; };
  const auto leaves_some = [&](const auto& entry) {
    return !entry.second.ipam && std::ranges::none_of(entry.second.ranges, is_for_all);
  };
  return adds_network(request, config) && may_be(Mode::kExclusive, request, config) &&
         std::ranges::any_of(config.networks, leaves_some);
}

// Returns whether a list of the request has a selector of this kind.
bool selects_by(const Request& request, Selector::Kind kind) {
  const auto is_of_kind = [&](const Selector& selector) { return selector.kind == kind; };
  const auto names_so = [&](const HcaSelection& selection) {
    return std::ranges::any_of(selection.selectors.selectors, is_of_kind);
  };
  return names_so(request.selection) || std::ranges::any_of(request.narrowed_by, names_so);
}

// Returns whether the plan depends on the container's GPUs: the container may have some, and the request has the
// selector `gpu` or a count.
bool prefers_near_gpus(const Request& request) {
  if (request.gpu_nodes.empty() && request.gpu_uuids.empty() && !request.gpu_hint) return false;
  const auto counts = [](const HcaSelection& selection) { return selection.kind == HcaSelection::Kind::kCount; };
  return selects_by(request, Selector::Kind::kGpu) || counts(request.selection) ||
         std::ranges::any_of(request.narrowed_by, counts);
}

fabric::HcaFacts facts_for(const Request& request, const Config& config) {
  fabric::HcaFacts facts = facts_of_pools(config, {});
  const bool rails = adds_network(request, config);
  facts.gids = may_be(Mode::kSharedMulti, request, config);  // the GID table limits the child netdevs of an HCA
  facts.vfs = may_be(Mode::kExclusive, request, config);
  facts.guid |= selects_by(request, Selector::Kind::kGuid);
  facts.driver |= rails;
  facts.link_layer |= rails || facts.gids;
  // A device plugin can name HCAs by their netdevs in PCIDEVICE_* (match.cpp).
  facts.netdevs |= rails || !request.order.empty() || selects_by(request, Selector::Kind::kNetdev);
  facts.place = prefers_near_gpus(request);
  return facts;
}

bool numbers_rails(const Request& request, const Config& config) {
  return adds_network(request, config) || selects_by(request, Selector::Kind::kRail);
}

// Returns the facts to read of HCAs that are not requested; nullopt: none are needed. Rails are numbered over all HCAs
// of the node, and the selector `index:` counts all HCAs. If `rails` of config.json lists the requested HCAs by name,
// the names of the other HCAs are enough. A VF of "pf:NAME" is found by the PCI function of NAME.
std::optional<fabric::HcaFacts> facts_of_others(const Request& request, const Config& config,
                                                const std::vector<std::string>& wanted, bool variables) {
  const bool rails = numbers_rails(request, config);
  const bool listed = is_of_names(config.rails) && std::ranges::all_of(wanted, [&](const std::string& name) {
                        return std::ranges::find(config.rails, name, &RailEntry::text) != config.rails.end();
                      });
  if (rails && !listed) return facts_of_pools(config);
  if (variables && has_entry(config.rails, Selector::Kind::kPf)) return fabric::HcaFacts{.node = false};
  if (rails || !request.narrowed_by.empty()) return fabric::kNameOnly;
  return std::nullopt;
}

}  // namespace

bool counts_all_hcas(const Request& request, const Config& config, const fabric::Inventory& inventory) {
  if (selects_by(request, Selector::Kind::kIndex)) return true;
  if (!numbers_rails(request, config)) return false;
  // If only the names of other HCAs were read, the list has all requested HCAs (facts_of_others()). If the node shows
  // each name of the list, it can lack no HCA before them.
  const auto is_shown = [&](const RailEntry& entry) { return find_hca(inventory, entry.text) != nullptr; };
  return std::ranges::none_of(inventory.hcas, &fabric::Hca::is_name_only) ||
         !std::ranges::all_of(config.rails, is_shown);
}

bool counts_names(const Request& request, const Config& config) {
  return selects_by(request, Selector::Kind::kIndex) || (!config.rails.empty() && is_of_names(config.rails));
}

fabric::HcaFacts facts_of_pools(const Config& config, fabric::HcaFacts facts) {
  for (const Pool& pool : config.pools) {
    facts.vendor |= !pool.selectors.vendors.empty();
    facts.device_id |= !pool.selectors.device_ids.empty();
    facts.driver |= !pool.selectors.drivers.empty() || pool.lend_providers;
    facts.netdevs |= !pool.selectors.if_names.empty();
    facts.link_layer |= !pool.selectors.link_types.empty();
  }
  facts.guid |= has_entry(config.rails, Selector::Kind::kGuid);
  facts.pfs |= has_entry(config.rails, Selector::Kind::kPf);
  return facts;
}

fabric::HcaFacts ranking_facts(const Request& request, const Config& config) {
  fabric::HcaFacts facts = facts_of_pools(config);
  facts.identity = true;
  facts.place = prefers_near_gpus(request);
  return facts;
}

fabric::NodeReadOptions read_options(const Request& request, const Config& config,
                                     std::optional<std::vector<std::string>> hcas, const ContainerNetwork& container) {
  fabric::NodeReadOptions read;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.facts = facts_for(request, config);
  read.facts.pfs = true;  // another owner may have the PF's HCA exclusively
  read.facts.use = container.variables;
  // In a container's own network namespace, a usable RoCE port has a rail with an address and GIDs of RoCE v2. In the
  // node's network namespace, it has a GID that is an address of one of the node's netdevs.
  const bool in_own = container.variables && !container.in_nodes;
  const bool gets_rails = in_own && adds_rails(request, config);
  const bool brings_rails = in_own && !container.brings.empty();
  read.facts.own_gids = container.variables && container.in_nodes;
  read.facts.gid_types = gets_rails || brings_rails;
  // In a container without rails, rdma-init may use GIDs of the node. rdma-init recognises such GIDs by the node's
  // addresses, which RDMA_INIT_NODE_ADDRESSES has.
  const bool announces_addresses = in_own && !gets_rails;
  read.facts.netdevs |= announces_addresses || brings_rails;
  read.facts.addresses = announces_addresses || brings_rails || (in_own && may_bring_addresses(request, config));
  // To read a fact, files of sysfs are opened for each HCA. So only the facts that the plan needs are read.
  read.gpus = read.facts.place;
  read.hcas = std::move(hcas);
  if (read.hcas) read.others = facts_of_others(request, config, *read.hcas, container.variables);
  return read;
}

}  // namespace hook
