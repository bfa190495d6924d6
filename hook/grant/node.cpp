#include "hook/grant/node.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "fabric/read_node.hpp"
#include "fabric/snapshot.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan_parts.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::Selector;

// The HCAs of the uverbs nodes that the container has already; nullopt: one of them belongs to none.
std::optional<std::vector<std::string>> hcas_of_given_nodes(const Request& request, const std::string& root) {
  std::vector<std::string> names;
  for (const SpecDevice& device : request.given) {
    const auto named = fabric::uverbs_number(device.path);
    const auto number = device.uverbs() ? device.uverbs() : named;
    if (named && number != named) return std::nullopt;
    const auto name = number ? fabric::hca_of_uverbs(root, *number) : std::nullopt;
    if (!name) return std::nullopt;  // make_plan() says what is wrong with it, once it knows the node
    names.push_back(*name);
  }
  return names;
}

// nullopt: it can be about any HCA.
std::optional<std::vector<std::string>> names_to_read(const Request& request, const std::string& root) {
  auto given = hcas_of_given_nodes(request, root);
  if (!given || request.given_is_the_grant || request.wish.kind == Wish::Kind::kNone) return given;
  auto named = named_hcas(request.wish);
  if (!named) return named;
  for (std::string& name : *given) {
    if (std::find(named->begin(), named->end(), name) == named->end()) named->push_back(std::move(name));
  }
  return named;
}

bool gives_network(const Request& request, const Config& config) {
  return request.network || std::any_of(config.pools.begin(), config.pools.end(),
                                        [](const Pool& pool) { return pool.network.has_value(); });
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
    return !entry.second.ipam && std::none_of(entry.second.ranges.begin(), entry.second.ranges.end(), is_for_all);
  };
  return gives_network(request, config) && may_be(Mode::kExclusive, request, config) &&
         std::any_of(config.networks.begin(), config.networks.end(), leaves_some);
}

// Whether some list names HCAs in this way.
bool selects_by(const Request& request, Selector::Kind kind) {
  const auto is_of_kind = [&](const Selector& selector) { return selector.kind == kind; };
  const auto names_so = [&](const Wish& wish) {
    return std::any_of(wish.selectors.selectors.begin(), wish.selectors.selectors.end(), is_of_kind);
  };
  return names_so(request.wish) || std::any_of(request.narrowed_by.begin(), request.narrowed_by.end(), names_so);
}

// GPUs decide where they are asked for, and order what a count leaves open.
bool prefers_near_gpus(const Request& request) {
  if (request.gpu_nodes.empty() && request.gpu_uuids.empty() && !request.gpu_hint) return false;
  const auto counts = [](const Wish& wish) { return wish.kind == Wish::Kind::kCount; };
  return selects_by(request, Selector::Kind::kGpu) || counts(request.wish) ||
         std::any_of(request.narrowed_by.begin(), request.narrowed_by.end(), counts);
}

// What pools tell HCAs apart by, and these.
fabric::HcaFacts facts_of_pools(const Config& config, fabric::HcaFacts facts = {.node = false}) {
  for (const Pool& pool : config.pools) {
    facts.vendor |= !pool.selectors.vendors.empty();
    facts.device_id |= !pool.selectors.device_ids.empty();
    facts.driver |= !pool.selectors.drivers.empty();
    facts.netdevs |= !pool.selectors.if_names.empty();
    facts.link_layer |= !pool.selectors.link_types.empty();
  }
  return facts;
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
  const bool listed = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(config.rails.begin(), config.rails.end(), name) != config.rails.end();
  });
  if (rails && !listed) return facts_of_pools(config);
  if (rails || !request.narrowed_by.empty()) return fabric::kNameOnly;
  return std::nullopt;
}

}  // namespace

bool set_node_option(NodeSettings& node, std::string_view name, const std::string& value) {
  if (name == "--config") {
    node.config = {value, "", true};
  } else if (name == "--root") {
    node.root = value;
  } else if (name == "--ledger") {
    node.ledger = value;
  } else {
    return false;
  }
  return true;
}

Result<fabric::Inventory> read_node_for(const Asking& asking, const NodeSettings& node, bool variables) {
  const Request& request = *asking.request;
  const Config& config = asking.admin;
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  fabric::NodeReadOptions read;
  read.root = node.root;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.facts = facts_for(request, config);
  read.facts.pfs = true;  // others may hold them
  read.facts.use = variables;
  // In its own namespace a RoCE port needs a rail with an address, and GIDs of RoCE v2. In the node's, a GID of an
  // address that is there.
  const bool in_nodes = variables && TRY(uses_host_network(asking.spec));
  read.facts.own_gids = in_nodes;
  const bool in_own = variables && !in_nodes;
  const bool gets_rails = in_own && gives_rails(request, config);
  const bool brings_rails = in_own && !asking.spec.moved_netdevs.empty();
  read.facts.gid_types = gets_rails || brings_rails;
  // Without rails it may take the node's GIDs, which their addresses tell from others'.
  const bool tells_addresses = in_own && !gets_rails;
  read.facts.netdevs |= tells_addresses || brings_rails;
  read.facts.addresses = tells_addresses || brings_rails || (in_own && may_bring_addresses(request, config));
  read.gpus = read.facts.place;
  read.hcas = names_to_read(request, node.root);
  if (read.hcas) read.others = facts_of_others(request, config, *read.hcas);
  auto inventory = fabric::read_node(read);
  const auto known = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // A name that does not exist: the refusal says what does.
  if (read.hcas && !std::all_of(read.hcas->begin(), read.hcas->end(), known)) {
    read.hcas.reset();
    inventory = fabric::read_node(read);
  }
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  return inventory;
}

Result<fabric::Inventory> read_whole_node(const Config& config, const NodeSettings& node,
                                          const fabric::HcaFacts& facts) {
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  fabric::NodeReadOptions read;
  read.root = node.root;
  read.facts = facts_of_pools(config, facts);
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  return fabric::read_node(read);
}

}  // namespace hook
