#include "hook/grant/node.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "fabric/read_node.hpp"
#include "fabric/snapshot.hpp"
#include "hook/plan/plan_parts.hpp"

namespace hook {
namespace {

using fabric::Result;

// The HCAs of the uverbs nodes that the container has already; nullopt: one of them belongs to none.
std::optional<std::vector<std::string>> hcas_of_given_nodes(const Request& request, const std::string& root) {
  std::vector<std::string> names;
  for (const SpecDevice& device : request.given) {
    const auto number = fabric::uverbs_number(device.path);
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
  auto named = named_hcas(request);
  if (!named) return named;
  for (std::string& name : *given) {
    if (std::find(named->begin(), named->end(), name) == named->end()) named->push_back(std::move(name));
  }
  return named;
}

// Rails are numbered among all HCAs of the node, and a pool can be a matter of netdevs.
bool needs_whole_node(const Request& request, const Config& config) {
  const bool pool_network =
      std::any_of(config.pools.begin(), config.pools.end(), [](const Pool& pool) { return pool.network.has_value(); });
  return request.network || pool_network || !request.narrowed_by.empty();
}

// Whether pools tell HCAs apart.
bool pools_select(const Config& config) {
  return std::any_of(config.pools.begin(), config.pools.end(),
                     [](const Pool& pool) { return !(pool.selectors == PoolSelectors{}); });
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

bool may_be(Mode mode, const Request& request, const Config& config) {
  if (request.mode) return request.mode == mode;
  const auto network_is = [&](const auto& entry) { return entry.second.mode == mode; };
  const auto pool_is = [&](const Pool& pool) { return !pool.modes.empty() && pool.modes.front() == mode; };
  return std::any_of(config.networks.begin(), config.networks.end(), network_is) ||
         std::any_of(config.pools.begin(), config.pools.end(), pool_is);
}

Result<fabric::Inventory> read_node_for(const Request& request, const Config& config, const NodeSettings& node) {
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  fabric::NodeReadOptions read;
  read.root = node.root;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.gids = may_be(Mode::kSharedMulti, request, config);  // which bounds the children of an HCA
  if (!needs_whole_node(request, config)) {
    read.hcas = names_to_read(request, node.root);
    read.details = !read.hcas;
    // A device plugin may name HCAs by their netdevs (match.cpp).
    read.selectors = read.details || read.gids || pools_select(config) || !request.order.empty();
  }
  // A request that names its HCAs gets these, near to its GPUs or not.
  read.gpus = read.details && (!request.gpu_nodes.empty() || request.gpu_hint);
  auto inventory = fabric::read_node(read);
  const auto known = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // A name that does not exist: the refusal says what does.
  if (read.hcas && !std::all_of(read.hcas->begin(), read.hcas->end(), known)) {
    read.hcas.reset();
    read.details = read.selectors = true;
    inventory = fabric::read_node(read);
  }
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  return inventory;
}

Result<fabric::Inventory> read_whole_node(const Config& config, const NodeSettings& node) {
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  fabric::NodeReadOptions read;
  read.root = node.root;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.gpus = true;
  return fabric::read_node(read);
}

}  // namespace hook
