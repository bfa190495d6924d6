#include "hook/grant/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fabric/kept_node.hpp"
#include "fabric/read_node.hpp"
#include "fabric/snapshot.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/node_needs.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/plan.hpp"

namespace hook {
namespace {

// Returns the names of the HCAs to read; nullopt: all, because the request can match any.
std::optional<std::vector<std::string>> names_to_read(const Request& request, const std::string& root) {
  auto granted = hcas_of_granted_nodes(request, root);
  if (!granted || request.has_nodes_of_grant || request.selection.kind == HcaSelection::Kind::kNone) return granted;
  auto named = named_hcas(request.selection);
  if (!named) return named;
  for (std::string& name : *granted)
    if (std::find(named->begin(), named->end(), name) == named->end()) named->push_back(std::move(name));
  return named;
}

// Most reads of a node while HCAs are renamed, or move to another network namespace, during each of them.
constexpr int kMostReads = 4;

bool was_stale(const fabric::Inventory& inventory) {
  return std::ranges::any_of(inventory.unread, [](const fabric::Unread& unread) { return unread.code == ESTALE; });
}

// Reads the node, again if the name of an HCA led to two devices during the read. Otherwise the move of one HCA into a
// pod would refuse containers that start at the same time.
fabric::Inventory read_by(const NodeSettings& node, const fabric::NodeReadOptions& options) {
  for (int left = kMostReads;;) {
    auto inventory = node.kept ? node.kept->read(options) : fabric::read_node(options);
    if (--left == 0 || !was_stale(inventory)) return inventory;
  }
}

// Moves the HCAs of `survey` that are not in `names` into the inventory, and adds their netdevs and failed reads. Each
// HCA has its place in `survey`, so the inventory needs no sort.
void take_others(fabric::Inventory& survey, const std::vector<std::string>& names, fabric::Inventory& inventory) {
  const auto is_other = [&](const std::string& hca) { return std::ranges::find(names, hca) == names.end(); };
  std::vector<fabric::Hca> read = std::exchange(inventory.hcas, std::exchange(survey.hcas, {}));
  std::erase_if(inventory.hcas, [&](fabric::Hca& hca) {
    if (is_other(hca.name)) return false;
    const auto found = std::ranges::find(read, hca.name, &fabric::Hca::name);
    if (found != read.end()) hca = std::move(*found);
    return found == read.end();
  });
  std::ranges::copy_if(survey.netdevs, std::back_inserter(inventory.netdevs),
                       [&](const fabric::Netdev& netdev) { return !fabric::find_netdev(inventory, netdev.name); });
  std::ranges::copy_if(survey.unread, std::back_inserter(inventory.unread),
                       [&](const fabric::Unread& unread) { return is_other(unread.hca); });
}

}  // namespace

std::string ledger_path(const NodeSettings& node) {
  return node.ledger == kLedgerPath ? node.root + node.ledger : node.ledger;
}

Result<void> check_root(const std::string& root) {
  // Appends "/.", which fails for a file, and for a directory that this user cannot enter.
  if (root.empty() || ::access((root + "/.").c_str(), F_OK) == 0) return {};
  Error error = sys_error(errno, "--root `{}`", base::printable(root));
  error.hint = error.code == EACCES ? "run the command as root" : "name the directory that has the node's files";
  return error;
}

std::optional<std::vector<std::string>> hcas_of_granted_nodes(const Request& request, const std::string& root) {
  std::vector<std::string> names;
  for (const SpecDevice& device : request.granted_nodes) {
    const auto named = fabric::uverbs_number(device.path);
    const auto number = device.uverbs() ? device.uverbs() : named;
    if (named && number != named) return std::nullopt;
    const auto name = number ? fabric::hca_of_uverbs(root, *number) : std::nullopt;
    if (!name) return std::nullopt;  // make_plan() reports the cause from the whole node
    names.push_back(*name);
  }
  return names;
}

Result<fabric::NodeReadOptions> options_for(const ContainerRequest& requesting, const NodeSettings& node,
                                            bool variables, std::optional<std::vector<std::string>> names) {
  const bool in_nodes = variables && TRY(uses_host_network(requesting.spec));
  auto read = read_options(*requesting.request, requesting.admin, std::move(names),
                           {.variables = variables, .in_nodes = in_nodes, .brings = requesting.spec.moved_netdevs});
  read.root = node.root;
  return read;
}

Result<fabric::Inventory> read_some(const NodeSettings& node, fabric::NodeReadOptions read, fabric::Inventory& survey) {
  const std::vector<std::string> names = read.hcas.value();
  read.others.reset();
  read.gpus = false;
  auto inventory = read_by(node, read);
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  inventory.gpus = survey.gpus;
  take_others(survey, names, inventory);
  return inventory;
}

Result<fabric::Inventory> read_node_for(const ContainerRequest& requesting, const NodeSettings& node, bool variables) {
  if (node.snapshot) return fabric::read_snapshot(*node.snapshot);
  auto read = TRY(options_for(requesting, node, variables, names_to_read(*requesting.request, node.root)));
  auto inventory = read_by(node, read);
  const auto known = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // A requested name does not exist: read all HCAs, because the refusal lists them.
  if (read.hcas && !std::all_of(read.hcas->begin(), read.hcas->end(), known)) {
    read.hcas.reset();
    inventory = read_by(node, read);
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
  return read_by(node, read);
}

}  // namespace hook
