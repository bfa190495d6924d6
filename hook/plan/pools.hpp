// A node's HCAs as the administrator divided them: which pool, which rail, which netdev.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

struct NodeHca {
  const fabric::Hca* hca = nullptr;
  const Pool* pool = nullptr;  // the first whose selectors take it; nullptr: none does, or it is not known
  // Why it is not known which pool takes it. Containers may not have it then, and what has its node counts as holding
  // it.
  const fabric::Unread* pool_unread = nullptr;
  std::size_t index = 0;             // among the node's HCAs, in the order of the inventory
  unsigned rail = 0;                 // in the order of config.rails, then by PCI address, then by name; pools' first
  std::vector<std::string> netdevs;  // every name that may be meant by "netdev:": its ports' own and their bonds'
  // What moves or gets a child: the netdev of its first ACTIVE port, or the bond (bridge, netvsc) that has enslaved it,
  // because an enslaved netdev takes no macvlan. nullopt: unknown.
  std::optional<std::string> netdev;
  bool enslaved = false;  // netdev is such a master

  const std::string& name() const { return hca->name; }
  bool is_active() const;      // a port is
  bool is_infiniband() const;  // of the port that netdev belongs to
};

// Keeps pointers into the inventory, which has to outlive it. Not copied: the HCAs point at its pools.
class NodeMap {
 public:
  NodeMap(const fabric::Inventory& inventory, const Config& config);
  NodeMap(const NodeMap&) = delete;
  NodeMap& operator=(const NodeMap&) = delete;

  const std::vector<NodeHca>& hcas() const { return hcas_; }  // in the order of the inventory
  const std::vector<const NodeHca*>& by_rail() const { return by_rail_; }
  const NodeHca* find(std::string_view name) const;  // nullptr: no such HCA
  std::vector<std::string> names() const;

 private:
  std::vector<Pool> pools_;
  std::vector<NodeHca> hcas_;
  std::vector<const NodeHca*> by_rail_;
};

// The HCAs of pools that count one kind which are of another kind: another rate or link layer than those with the
// largest sum of rates (of equals InfiniBand). A trainer does not use both kinds together. An HCA without an active
// port of a known rate may be of either kind and is not among them.
std::vector<const NodeHca*> other_kinds_of(const NodeMap& node);

// "its pool is not known: cannot read `PATH`: ...". pool_unread: not nullptr.
Error unknown_pool(const NodeHca& node);

std::vector<std::string> names_of(const std::vector<const NodeHca*>& hcas);

// Orders PCI addresses by domain, bus, device, function: "0000:0c:00.0" before "10000:01:00.0".
bool pci_less(const std::string& left, const std::string& right);

}  // namespace hook
