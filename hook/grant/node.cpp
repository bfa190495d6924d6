#include "hook/grant/node.hpp"

#include <algorithm>
#include <vector>

#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "hook/base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/node_needs.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/plan.hpp"

namespace hook {
namespace {

// Returns the HCAs of the container's uverbs nodes; nullopt: a node belongs to no HCA, or its path and its number name
// different HCAs.
std::optional<std::vector<std::string>> hcas_of_granted_nodes(const Request& request, const std::string& root) {
  std::vector<std::string> names;
  for (const SpecDevice& device : request.given) {
    const auto named = fabric::uverbs_number(device.path);
    const auto number = device.uverbs() ? device.uverbs() : named;
    if (named && number != named) return std::nullopt;
    const auto name = number ? fabric::hca_of_uverbs(root, *number) : std::nullopt;
    if (!name) return std::nullopt;  // make_plan() reports the cause from the whole node
    names.push_back(*name);
  }
  return names;
}

// Returns the names of the HCAs to read; nullopt: all, because the request can match any.
std::optional<std::vector<std::string>> names_to_read(const Request& request, const std::string& root) {
  auto given = hcas_of_granted_nodes(request, root);
  if (!given || request.has_nodes_of_grant || request.selection.kind == HcaSelection::Kind::kNone) return given;
  auto named = named_hcas(request.selection);
  if (!named) return named;
  for (std::string& name : *given) {
    if (std::find(named->begin(), named->end(), name) == named->end()) named->push_back(std::move(name));
  }
  return named;
}

}  // namespace

Result<fabric::Inventory> read_node_for(const ContainerRequest& requesting, const NodeSettings& node, bool variables) {
  const Request& request = *requesting.request;
  const Config& config = requesting.admin;
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  const bool in_nodes = variables && TRY(uses_host_network(requesting.spec));
  auto read = read_options(request, config, names_to_read(request, node.root),
                           {.variables = variables, .in_nodes = in_nodes, .brings = requesting.spec.moved_netdevs});
  read.root = node.root;
  auto inventory = fabric::read_node(read);
  const auto known = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // A requested name does not exist: read all HCAs, because the refusal lists them.
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
