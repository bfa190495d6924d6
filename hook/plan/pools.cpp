#include "hook/plan/pools.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

using fabric::Hca;
using fabric::Inventory;
using fabric::Netdev;
using fabric::Port;

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

// Returns the netdev of the first GID of the port that names a netdev of this network namespace.
std::optional<std::string> gid_netdev(const Inventory& inventory, const Port& port) {
  for (const fabric::GidEntry& gid : port.gids) {
    if (!gid.ndev) continue;
    const auto* name = std::get_if<std::string>(&*gid.ndev);
    if (name && fabric::find_netdev(inventory, *name)) return *name;
  }
  return std::nullopt;
}

// Returns the port's netdev among the netdevs on the HCA's PCI function. The function can also have representors
// (netdevs of its VFs in switchdev mode) and, with mlx4, the netdev of another port. The sysfs file dev_port of a
// netdev has the number of its port, counted from 0.
std::optional<std::string> pci_netdev(const Inventory& inventory, const Hca& hca, const Port& port) {
  std::vector<const Netdev*> on_function;
  for (const Netdev& netdev : inventory.netdevs)
    if (hca.pci && netdev.pci == hca.pci && netdev.is_here()) on_function.push_back(&netdev);
  if (on_function.empty()) return std::nullopt;
  const auto of_port = [&](const Netdev* netdev) { return netdev->dev_port == static_cast<int>(port.number) - 1; };
  const auto found = std::ranges::find_if(on_function, of_port);
  // If no netdev has the dev_port of the port, the function's first netdev counts as the netdev of the first port.
  if (found != on_function.end()) return (*found)->name;
  if (hca.ports.size() > 1 && port.number > 1) return std::nullopt;
  return on_function.front()->name;
}

std::optional<std::string> port_netdev(const Inventory& inventory, const Hca& hca, const Port& port) {
  if (port.netdev) return port.netdev;
  auto on_function = pci_netdev(inventory, hca, port);
  // If the PCI function has several netdevs, the port's GIDs decide: each GID of a RoCE port names its netdev.
  if (auto named = gid_netdev(inventory, port)) {
    const Netdev* netdev = fabric::find_netdev(inventory, *named);
    if (!on_function || netdev->pci == hca.pci) return named;
  }
  return on_function;
}

// Returns the ports of the HCA, ACTIVE ports first, because the netdevs of ACTIVE ports carry the traffic.
std::vector<const Port*> active_first(const Hca& hca) {
  std::vector<const Port*> ports;
  for (const Port& port : hca.ports)
    ports.push_back(&port);
  std::stable_partition(ports.begin(), ports.end(), [](const Port* port) { return port->is_active(); });
  return ports;
}

const Netdev* master_of(const Inventory& inventory, const std::string& name) {
  const Netdev* netdev = fabric::find_netdev(inventory, name);
  return netdev && netdev->master ? fabric::find_netdev(inventory, *netdev->master) : nullptr;
}

void find_netdevs(const Inventory& inventory, NodeHca& node) {
  if (node.hca->ports.empty()) return;
  for (const Port* port : active_first(*node.hca)) {
    const auto own = port_netdev(inventory, *node.hca, *port);
    if (!own) continue;
    const Netdev* master = master_of(inventory, *own);
    add_name(node.netdevs, *own);
    if (master) add_name(node.netdevs, master->name);
    if (node.netdev) continue;
    node.enslaved = master != nullptr;
    node.netdev = master ? master->name : *own;
  }
}

// Whether selectors match an HCA. The order of the values makes std::min the logical "and".
enum class Takes { kNo, kUnknown, kYes };

// Returns kYes if the list is empty or matches(entry) is true for an entry. Otherwise returns `unless`: the caller
// passes kUnknown if the HCA's value could not be read, because it could match an entry, and else kNo.
Takes takes(const std::vector<std::string>& list, Takes unless, auto matches) {
  if (list.empty() || std::ranges::any_of(list, matches)) return Takes::kYes;
  return unless;
}

// Returns whether the selectors match the HCA. unread: a value of this HCA that pools select by could not be read.
Takes takes(const PoolSelectors& selectors, const NodeHca& node, bool unread) {
  const Hca& hca = *node.hca;
  const auto unless = [&](bool known) { return known || !unread ? Takes::kNo : Takes::kUnknown; };
  const auto link_type = [&](const std::string& type) {
    return std::ranges::any_of(hca.ports, [&](const Port& port) {
      return (type == "ether" && port.is_ethernet()) || (type == "infiniband" && port.is_infiniband());
    });
  };
  const auto netdev = [&](const std::string& glob) {
    return std::ranges::any_of(node.netdevs, [&](const std::string& name) { return base::glob_match(glob, name); });
  };
  const auto pci = [&](const std::string& glob) { return hca.pci && base::glob_match(glob, *hca.pci); };
  return std::min(
      {takes(selectors.pci_addresses, unless(hca.pci.has_value()), pci),
       takes(selectors.vendors, unless(hca.vendor.has_value()),
             [&](const auto& id) { return hca.vendor && pci_id(*hca.vendor) == id; }),
       takes(selectors.device_ids, unless(hca.device_id.has_value()),
             [&](const auto& id) { return hca.device_id && pci_id(*hca.device_id) == id; }),
       takes(selectors.drivers, unless(hca.driver.has_value()), [&](const auto& name) { return hca.driver == name; }),
       takes(selectors.if_names, unless(false), netdev), takes(selectors.link_types, unless(false), link_type)});
}

void find_pool(const std::vector<Pool>& pools, const Inventory& inventory, NodeHca& node) {
  const auto is_of_it = [&](const fabric::Unread& unread) {
    return unread.part == fabric::Unread::Part::kPool && unread.hca == node.name();
  };
  const auto unread = std::ranges::find_if(inventory.unread, is_of_it);
  for (const Pool& pool : pools) {
    const Takes taken = takes(pool.selectors, node, unread != inventory.unread.end());
    if (taken == Takes::kYes) node.pool = &pool;
    if (taken == Takes::kUnknown) node.pool_unread = &*unread;
    if (taken != Takes::kNo) return;
  }
}

// Returns whether the HCA is the physical function NAME of "pf:NAME", or one of its VFs. NAME is found by its PCI
// function too, because a VF in a container's network namespace does not show the HCA of its PF there.
bool is_of_pf(const Inventory& inventory, const Hca& hca, const std::string& pattern) {
  const auto is_named = [&](const std::string& name) { return base::glob_match(pattern, name); };
  if (is_named(hca.name) || std::ranges::any_of(hca.pfs, is_named)) return true;
  return hca.pfs.empty() && hca.physfn && std::ranges::any_of(inventory.hcas, [&](const Hca& other) {
           return other.pci == hca.physfn && is_named(other.name);
         });
}

bool has_its_pf(const Inventory& inventory, const Hca& hca) {
  return !hca.pfs.empty() ||
         std::ranges::any_of(inventory.hcas, [&](const Hca& other) { return other.pci == hca.physfn; });
}

// Returns whether the entry may select the HCA, of which it compares a fact that is not known. An entry for one HCA
// does not if the node shows that HCA.
bool may_be_of(const fabric::Selector& selector, const Inventory& inventory, const Hca& hca) {
  using Kind = fabric::Selector::Kind;
  const bool is_unknown =
      (selector.kind == Kind::kGuid && hca.node_guid.empty()) || (selector.kind == Kind::kName && hca.name.empty());
  if (!is_unknown) return false;
  const bool is_glob = selector.pattern.find('*') != std::string::npos;
  return is_glob || std::ranges::none_of(
                        inventory.hcas, [&](const Hca& other) { return fabric::selects(selector, other, Port{}, {}); });
}

// Finds the first entry of `rails` that selects the HCA. An entry before it that cannot be compared leaves the HCA
// without an entry, because it may be the right one.
void find_entry(const std::vector<RailEntry>& rails, const Inventory& inventory, NodeHca& node) {
  using Kind = fabric::Selector::Kind;
  const Hca& hca = *node.hca;
  for (const RailEntry& entry : rails) {
    const Kind kind = entry.selector.kind;
    const bool selects = kind == Kind::kPf ? is_of_pf(inventory, hca, entry.selector.pattern)
                                           : fabric::selects(entry.selector, hca, Port{}, {});
    if (selects) {
      node.entry = &entry;
      return;
    }
    if (may_be_of(entry.selector, inventory, hca))
      node.entry_unknown = kind == Kind::kGuid ? "its GUID is not known" : "its name is not known";
    if (kind == Kind::kPf && hca.physfn && !has_its_pf(inventory, hca))
      node.entry_unknown = "the HCA of its physical function is not visible on the node";
    if (!node.entry_unknown.empty()) return;
  }
}

// The place of an HCA in the order of rails, up to the comparison of PCI addresses and names. A node can have hundreds
// of HCAs, so this part is computed once for each HCA.
struct RailPlace {
  bool is_unlisted = false;
  unsigned rail = 0;
  std::optional<unsigned> plane;
  bool has_no_pool = false;
  bool has_no_pci = false;
  friend auto operator<=>(const RailPlace&, const RailPlace&) = default;
};
using PlacedHca = std::pair<RailPlace, NodeHca*>;

RailPlace place_of(const NodeHca& node) {
  RailPlace place{.plane = {}, .has_no_pool = node.pool == nullptr, .has_no_pci = !node.hca->pci};
  place.is_unlisted = node.entry == nullptr;
  if (!node.entry) return place;
  place.rail = node.entry->rail;
  place.plane = node.entry->plane;
  return place;
}

// Orders HCAs by `rails`. HCAs that `rails` does not list follow: first the HCAs in a pool, so that a front-end NIC
// without a pool does not shift the numbers of rails. Among equals, hardware precedes software devices, then PCI
// address and name decide.
bool rail_less(const PlacedHca& left, const PlacedHca& right) {
  if (const auto order = left.first <=> right.first; order != 0) return order < 0;
  const auto& left_pci = left.second->hca->pci;
  const auto& right_pci = right.second->hca->pci;
  if (left_pci && *left_pci != *right_pci) return pci_less(*left_pci, *right_pci);
  return base::natural_less(left.second->name(), right.second->name());
}

// Returns the HCAs of both lists in the order of rail_less(). Most nodes number their HCAs in the order of PCI
// addresses: then no sort is needed.
std::vector<NodeHca*> by_rail_of(std::vector<NodeHca>& hcas, std::vector<NodeHca>& away) {
  std::vector<PlacedHca> placed;
  placed.reserve(hcas.size() + away.size());
  for (std::vector<NodeHca>* list : {&hcas, &away})
    for (NodeHca& node : *list)
      placed.emplace_back(place_of(node), &node);
  if (!std::ranges::is_sorted(placed, rail_less)) std::ranges::sort(placed, rail_less);
  std::vector<NodeHca*> order;
  order.reserve(placed.size());
  for (const PlacedHca& one : placed)
    order.push_back(one.second);
  return order;
}

// Numbers the rails of HCAs in the order of rail_less().
void number_rails(const std::vector<RailEntry>& rails, const std::vector<NodeHca*>& order) {
  unsigned next = rails.empty() || is_of_names(rails) ? 0 : rails.back().rail + 1;
  const bool keeps_gaps = next > 0;
  for (NodeHca* node : order)
    node->rail = keeps_gaps && node->entry ? node->entry->rail : next++;
}

// Returns the pools of config.json, or one pool "all" of all HCAs if there are none. A pool without modes allows all
// modes, and its default is mode hca.
std::vector<Pool> effective_pools(const Config& config) {
  std::vector<Pool> pools = config.pools;
  if (pools.empty()) pools.push_back({"all", {}, {}, {}, std::nullopt});
  for (Pool& pool : pools)
    if (pool.modes.empty()) pool.modes = {Mode::kHca, Mode::kExclusive, Mode::kShared, Mode::kSharedMulti};
  return pools;
}

}  // namespace

bool NodeHca::is_active() const {
  return std::ranges::any_of(hca->ports, [](const Port& port) { return port.is_active(); });
}

bool NodeHca::is_infiniband() const {
  const auto ports = active_first(*hca);
  return !ports.empty() && ports.front()->is_infiniband();
}

bool pci_less(const std::string& left, const std::string& right) {
  // A longer address has a higher domain: domains above 0xffff have five digits or more.
  if (left.size() != right.size()) return left.size() < right.size();
  return left < right;
}

NodeMap::NodeMap(const Inventory& inventory, const Config& config) : pools_(effective_pools(config)) {
  away_.reserve(inventory.away.size());
  for (const Hca& hca : inventory.away) {
    NodeHca& node = away_.emplace_back();
    node.hca = &hca;
    node.pool = &pools_.front();  // a container has the HCA, so a pool has it: which one does not matter for the order
    find_entry(config.rails, inventory, node);
  }
  hcas_.reserve(inventory.hcas.size());
  for (const Hca& hca : inventory.hcas) {
    NodeHca& node = hcas_.emplace_back();
    node.hca = &hca;
    node.index = hcas_.size() - 1;
    node.number = node.index;
    for (const Hca& other : inventory.away)
      if (base::natural_less(other.name, hca.name)) ++node.number;
    find_netdevs(inventory, node);
    find_pool(pools_, inventory, node);
    find_entry(config.rails, inventory, node);
  }
  auto order = by_rail_of(hcas_, away_);
  number_rails(config.rails, order);
  if (!away_.empty())
    std::erase_if(order, [&](const NodeHca* node) {
      return std::ranges::any_of(away_, [&](const NodeHca& one) { return &one == node; });
    });
  by_rail_.assign(order.begin(), order.end());
}

const NodeHca* NodeMap::find(std::string_view name) const {
  const auto found = std::ranges::find_if(hcas_, [&](const NodeHca& node) { return node.name() == name; });
  return found == hcas_.end() ? nullptr : &*found;
}

std::vector<std::string> NodeMap::names() const {
  std::vector<std::string> names;
  for (const NodeHca& node : hcas_)
    names.push_back(node.name());
  return names;
}

std::vector<const NodeHca*> other_kinds_of(const NodeMap& node) {
  // A kind with rate 0 stands for HCAs without an ACTIVE port or with an unknown rate.
  using Kind = std::pair<double, bool>;  // Gb/s of the fastest active port, and whether it is InfiniBand
  const auto kind_of = [](const NodeHca& hca) {
    Kind kind;
    for (const fabric::Port& port : hca.hca->ports)
      if (port.is_active()) kind = std::max(kind, Kind(port.rate_gbps(), port.is_infiniband()));
    return kind;
  };
  std::map<std::string, std::map<Kind, std::vector<const NodeHca*>>> by_resource;
  for (const NodeHca* hca : node.by_rail()) {
    const Kind kind = kind_of(*hca);
    const bool counts = hca->pool && hca->pool->counts_one_kind() && kind.first > 0;
    if (counts) by_resource[*hca->pool->resource][kind].push_back(hca);
  }
  std::vector<const NodeHca*> others;
  for (const auto& [resource, kinds] : by_resource) {
    const auto worth = [](const auto& kind) {
      return std::pair(kind.first.first * static_cast<double>(kind.second.size()), kind.first.second);
    };
    const auto best = std::ranges::max_element(
        kinds, [&](const auto& left, const auto& right) { return worth(left) < worth(right); });
    for (auto kind = kinds.begin(); kind != kinds.end(); ++kind)
      if (kind != best) others.insert(others.end(), kind->second.begin(), kind->second.end());
  }
  return others;
}

Error unknown_pool(const NodeHca& node) {
  Error error = sys_error(node.pool_unread->code, "its pool is unknown: cannot read `{}`",
                          base::printable(node.pool_unread->path));
  error.reason = FailureReason::kDevices;
  return error;
}

std::vector<std::string> names_of(const std::vector<const NodeHca*>& hcas) {
  std::vector<std::string> names;
  names.reserve(hcas.size());
  for (const NodeHca* node : hcas)
    names.push_back(node->name());
  return names;
}

}  // namespace hook
