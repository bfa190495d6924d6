#include "hook/plan/node_needs.hpp"

#include <algorithm>
#include <utility>

#include "hook/plan/match.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

using fabric::Selector;

bool gives_network(const Request& request, const Config& config) {
  return request.network ||
         std::ranges::any_of(config.pools, [](const Pool& pool) { return pool.network.has_value(); });
}

bool gives_rails(const Request& request, const Config& config) {
  return gives_network(request, config) &&
         (may_be(Mode::kShared, request, config) || may_be(Mode::kSharedMulti, request, config) ||
          may_be(Mode::kExclusive, request, config));
}

// Netdevs that move keep their addresses where the network has none for their rail.
bool may_bring_addresses(const Request& request, const Config& config) {
  const auto is_for_all = [](const AddressRange& range) { return !range.rail; };
  const auto leaves_some = [&](const auto& entry) {
    return !entry.second.ipam && std::ranges::none_of(entry.second.ranges, is_for_all);
  };
  return gives_network(request, config) && may_be(Mode::kExclusive, request, config) &&
         std::ranges::any_of(config.networks, leaves_some);
}

// Whether some list names HCAs in this way.
bool selects_by(const Request& request, Selector::Kind kind) {
  const auto is_of_kind = [&](const Selector& selector) { return selector.kind == kind; };
  const auto names_so = [&](const Wish& wish) { return std::ranges::any_of(wish.selectors.selectors, is_of_kind); };
  return names_so(request.wish) || std::ranges::any_of(request.narrowed_by, names_so);
}

// GPUs decide where they are asked for, and order what a count leaves open.
bool prefers_near_gpus(const Request& request) {
  if (request.gpu_nodes.empty() && request.gpu_uuids.empty() && !request.gpu_hint) return false;
  const auto counts = [](const Wish& wish) { return wish.kind == Wish::Kind::kCount; };
  return selects_by(request, Selector::Kind::kGpu) || counts(request.wish) ||
         std::ranges::any_of(request.narrowed_by, counts);
}

fabric::HcaFacts facts_for(const Request& request, const Config& config) {
  fabric::HcaFacts facts = facts_of_pools(config, {});
  const bool rails = gives_network(request, config);
  facts.gids = may_be(Mode::kSharedMulti, request, config);  // which bounds the children of an HCA
  facts.vfs = may_be(Mode::kExclusive, request, config);
  facts.guid = selects_by(request, Selector::Kind::kGuid);
  facts.driver |= rails;
  facts.link_layer |= rails || facts.gids;
  // A device plugin may name HCAs by their netdevs (match.cpp).
  facts.netdevs |= rails || !request.order.empty() || selects_by(request, Selector::Kind::kNetdev);
  facts.place = prefers_near_gpus(request);
  return facts;
}

// What is needed of HCAs that the request is not about: rails are numbered among all of the node, and index: counts
// them. Where config.json lists the rails, their number follows from which of these there are.
std::optional<fabric::HcaFacts> facts_of_others(const Request& request, const Config& config,
                                                const std::vector<std::string>& wanted) {
  const bool rails = gives_network(request, config) || selects_by(request, Selector::Kind::kRail);
  const bool listed = std::ranges::all_of(
      wanted, [&](const std::string& name) { return std::ranges::find(config.rails, name) != config.rails.end(); });
  if (rails && !listed) return facts_of_pools(config);
  if (rails || !request.narrowed_by.empty()) return fabric::kNameOnly;
  return std::nullopt;
}

}  // namespace

fabric::HcaFacts facts_of_pools(const Config& config, fabric::HcaFacts facts) {
  for (const Pool& pool : config.pools) {
    facts.vendor |= !pool.selectors.vendors.empty();
    facts.device_id |= !pool.selectors.device_ids.empty();
    facts.driver |= !pool.selectors.drivers.empty();
    facts.netdevs |= !pool.selectors.if_names.empty();
    facts.link_layer |= !pool.selectors.link_types.empty();
  }
  return facts;
}

fabric::NodeReadOptions read_options(const Request& request, const Config& config,
                                     std::optional<std::vector<std::string>> hcas, const ContainerNetwork& container) {
  fabric::NodeReadOptions read;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.facts = facts_for(request, config);
  read.facts.pfs = true;  // others may hold them
  read.facts.use = container.variables;
  // In its own namespace a RoCE port needs a rail with an address, and GIDs of RoCE v2. In the node's, a GID of an
  // address that is there.
  const bool in_own = container.variables && !container.in_nodes;
  const bool gets_rails = in_own && gives_rails(request, config);
  const bool brings_rails = in_own && !container.brings.empty();
  read.facts.own_gids = container.variables && container.in_nodes;
  read.facts.gid_types = gets_rails || brings_rails;
  // Without rails it may take the node's GIDs, which their addresses tell from others'.
  const bool tells_addresses = in_own && !gets_rails;
  read.facts.netdevs |= tells_addresses || brings_rails;
  read.facts.addresses = tells_addresses || brings_rails || (in_own && may_bring_addresses(request, config));
  read.gpus = read.facts.place;
  read.hcas = std::move(hcas);
  if (read.hcas) read.others = facts_of_others(request, config, *read.hcas);
  return read;
}

}  // namespace hook
