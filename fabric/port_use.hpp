// Decides which ports a container in a network namespace can use. Whether the container can open the device nodes is
// not checked here. The functions are pure; their input is the inventory of that namespace. rdma-init counts these
// ports for --require, and rdma-hook predicts the count of rdma-init.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

// is_stacked_on(), leaves_netns() and carries() find out which netdevs of this network namespace can have GIDs on a
// port. All three use the stacking of netdevs that netlink reports.
//
// The kernel adds a GID to a port for every address of the port's netdev and of every netdev stacked on it: a VLAN, a
// macvlan, an ipvlan, the bond or bridge of the port's netdev, and the netdevs stacked on any of these netdevs.
// Source: drivers/infiniband/core/roce_gid_mgmt.c, is_eth_port_of_netdev_filter(), Linux 6.12.

// Returns true if traffic of `upper` can leave through `lower`: both are the same netdev, or `upper` is stacked on
// `lower`, directly or through other netdevs, such as a bond or bridge.
bool is_stacked_on(const std::vector<Netdev>& netdevs, const Netdev& upper, const Netdev& lower);

// Returns true if `netdev` is stacked on a netdev of another network namespace, as a macvlan in a pod is. The port of
// such a netdev can only be found by comparing addresses with GIDs. Returns false for veth, bridges and tunnels: they
// have no lower device, and the peer of a veth does not count as one.
bool leaves_netns(const std::vector<Netdev>& netdevs, const Netdev& netdev);

// Whether a port can have GIDs for the addresses of a netdev. kMaybe: it is not known on which netdev `netdev` is
// stacked. This is so for a physical netdev, and for each netdev of a file tree or a snapshot.
enum class Carries { kNo, kMaybe, kYes };
Carries carries(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev,
                const Netdev& netdev);

// Follows the scan of one port's GID table, slot by slot, and reports when the scan can end: every GID of the port that
// this network namespace can own was found. Ignores down netdevs, because the kernel adds no GIDs for them. To find the
// owner of each GID, use OwnAddresses.
class GidSearch {
 public:
  // port_netdev: the port's own netdev if it is in this netns.
  GidSearch(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev);

  // Records that the scan read a slot with this GID and type RoCE v2. Returns true if this network namespace can own
  // it.
  bool found_v2(const Address& gid);
  // Returns true if it is a GID that this network namespace can own.
  bool wants(const Address& gid) const;
  // Returns true if no further slot can have a GID of this network namespace.
  bool complete() const;
  // Returns true if the scan found a GID of this network namespace: the port can be used.
  bool any() const;

 private:
  struct Candidate {
    Address address;
    std::size_t group = 0;  // netdevs over the same lower device have the same number
    bool found = false;
  };

  std::vector<Candidate> candidates_;
  std::optional<std::size_t> group_;  // Candidate::group of the netdevs over this port; nullopt: not known yet
};

struct OwnGid {
  const GidEntry* entry = nullptr;
  const Netdev* owner = nullptr;
  const InterfaceAddress* own = nullptr;
};

// Whether a port can be used in this network namespace, and with which GIDs.
struct PortUse {
  PortObstacle obstacle = PortObstacle::kNone;
  // RoCE only: GIDs of type RoCE v2, sorted by index, each with the up netdev of this network namespace that has its
  // address.
  std::vector<OwnGid> gids;
  // One example of each kind of GID that cannot be used.
  const GidEntry* foreign = nullptr;
  OwnGid on_down_netdev;
  OwnGid of_no_use;  // a GID whose address does not serve (InterfaceAddress::serves())
  OwnGid of_mac;     // default GID of a netdev here; `own` is nullptr
  const GidEntry* unreadable = nullptr;
  const GidEntry* v1 = nullptr;
  const GidEntry* too_high = nullptr;  // RoCE v2, but its index is not below kUsableGids

  bool usable() const { return obstacle == PortObstacle::kNone; }
};

// Finds the netdev of each GID by the addresses of this network namespace. The GID tables must be in the inventory,
// read from the machine or a snapshot. Unlike GidSearch, includes netdevs that are down: they explain why a port is not
// used.
class OwnAddresses {
 public:
  // The inventory must outlive this object and the results of use_of().
  explicit OwnAddresses(const Inventory& inventory);
  // Returns how the port can be used.
  PortUse use_of(const Port& port) const;

 private:
  OwnGid find_owner(const Port& port, const GidEntry& entry) const;
  OwnGid find_default_gid(const Port& port) const;
  void survey_gids(const Port& port, PortUse& use) const;

  const Inventory& inventory_;
  std::multimap<Address, std::pair<const Netdev*, const InterfaceAddress*>> owners_;
};

// Predicts the obstacle of a port in a network namespace that will get the port's netdev with an address. The GIDs of
// that address do not exist yet. The prediction assumes that the new GIDs will have the same types (RoCE v1, v2) as the
// GIDs in the table now, whatever network namespace owns these. An unknown type is no obstacle.
PortObstacle obstacle_of_rail(const Hca& hca, const Port& port);

}  // namespace fabric
