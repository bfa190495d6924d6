// Maps a node's HCAs to pools, rails and netdevs by the configuration.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"

namespace hook {

struct NodeHca {
  const fabric::Hca* hca = nullptr;
  const Pool* pool = nullptr;  // the first pool that matches; nullptr: none or unknown
  // The read error that makes the pool unknown; nullptr: there is none. After an error no container can request the
  // HCA, and each container that has the HCA's device node counts as a user of the HCA.
  const fabric::Unread* pool_unread = nullptr;
  std::size_t index = 0;   // index in the inventory
  std::size_t number = 0;  // number of `index:N`: among the HCAs of the node by name, with those of Inventory::away
  // Number of the rail. An entry of `rails` has its index there; in a list of names only, it has its index among the
  // names that the node has. HCAs without an entry follow, each with its own number: first HCAs in pools. An HCA of
  // Inventory::away keeps its number.
  unsigned rail = 0;
  std::vector<std::string> netdevs;  // names that "netdev:" matches: netdevs of its ports and their bonds
  // The netdev that moves to a container or gets a child netdev: the netdev of the first ACTIVE port. If that netdev
  // has a master (bond, bridge, netvsc), the master is used, because an enslaved netdev cannot have a macvlan.
  // nullopt: unknown.
  std::optional<std::string> netdev;
  bool enslaved = false;             // true: `netdev` is such a master
  const RailEntry* entry = nullptr;  // the first entry of `rails` that selects the HCA; nullptr: none or unknown
  // Why `entry` is unknown, as a clause: "mlx5_0 ..."; empty: it is known.
  std::string entry_unknown = {};

  const std::string& name() const { return hca->name; }
  bool is_active() const;      // a port is ACTIVE
  bool is_infiniband() const;  // link layer of the first ACTIVE port; without one, of the first port
};

// The HCAs of an inventory with their pools and rails. The inventory and the configuration must outlive the map. The
// map is not copyable, because the HCAs point to its pools.
class NodeMap {
 public:
  NodeMap(const fabric::Inventory& inventory, const Config& config);
  NodeMap(const NodeMap&) = delete;
  NodeMap& operator=(const NodeMap&) = delete;

  const std::vector<NodeHca>& hcas() const { return hcas_; }  // HCAs in the order of the inventory
  const std::vector<const NodeHca*>& by_rail() const { return by_rail_; }
  // The HCAs of Inventory::away: only name, entry and rail have a meaning.
  const std::vector<NodeHca>& away() const { return away_; }
  const NodeHca* find(std::string_view name) const;  // nullptr: the node has no such HCA
  std::vector<std::string> names() const;

 private:
  std::vector<Pool> pools_;
  std::vector<NodeHca> hcas_;
  std::vector<NodeHca> away_;
  std::vector<const NodeHca*> by_rail_;
};

// A kind of HCA is a rate and a link layer. A trainer does not use two kinds together. Kubernetes therefore counts only
// one kind for the resource of a pool without selectors (Pool::counts_one_kind()): the kind with the largest sum of
// rates, on a tie InfiniBand. Returns the HCAs of the other kinds in such pools. An HCA without an ACTIVE port of known
// rate can be of any kind and is not returned.
std::vector<const NodeHca*> other_kinds_of(const NodeMap& node);

// Returns "its pool is unknown: cannot read `PATH`: ...". pool_unread must not be nullptr.
Error unknown_pool(const NodeHca& node);

std::vector<std::string> names_of(const std::vector<const NodeHca*>& hcas);

// Compares PCI addresses by domain, bus, device and function: "0000:0c:00.0" before "10000:01:00.0".
bool pci_less(const std::string& left, const std::string& right);

}  // namespace hook
