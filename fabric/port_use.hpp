// Which ports a container in a network namespace can use, its device nodes aside. Pure, from that namespace's
// inventory. rdma-init counts these for --require, and rdma-hook what rdma-init will count.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

// Which netdevs of this network namespace can own GIDs on a port, from what netlink said about stacking.
//
// The kernel adds a GID to a port for every address of the port's netdev and of everything stacked on it: vlan,
// macvlan, ipvlan, the bond or bridge it is a slave of, and what is stacked on those
// (drivers/infiniband/core/roce_gid_mgmt.c, is_eth_port_of_netdev_filter(), 6.12).

// True if traffic of upper leaves by lower: the same netdev, or stacked on it (directly, through others or a bond).
bool is_stacked_on(const std::vector<Netdev>& netdevs, const Netdev& upper, const Netdev& lower);

// True for a netdev whose stack leaves this netns (a macvlan in a pod), so that only its GIDs tell on which port it is.
// Never for veth, bridges and tunnels: those carry GIDs only when they are a port's own netdev.
bool leaves_netns(const std::vector<Netdev>& netdevs, const Netdev& netdev);

// Whether a port can have GIDs for the addresses of a netdev of this netns. kMaybe: nothing is known of its stacking (a
// physical netdev, a file tree, a snapshot). port_netdev: the port's own netdev if it is in this netns.
enum class Carries { kNo, kMaybe, kYes };
Carries carries(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev,
                const Netdev& netdev);

// Follows the scan of one port's GID table and says when every GID that this netns can own there has been seen, so that
// the remaining slots need not be read. Not OwnAddresses, which has all GIDs that were read and tells whose each is:
// this one knows no slot ahead, and leaves out netdevs that are down, which bring no more GIDs.
class GidSearch {
 public:
  // port_netdev: the port's own netdev if it is in this netns.
  GidSearch(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev);

  // A slot with this GID and RoCE v2 type was read.
  void found_v2(const Address& gid);
  bool complete() const;
  // Whether one was: the port can be used here.
  bool any() const;

 private:
  struct Candidate {
    Address address;
    std::size_t group = 0;  // netdevs over one lower device
    bool found = false;
  };

  std::vector<Candidate> candidates_;
  std::optional<std::size_t> group_;  // the group that turned out to be on this port
};

struct OwnGid {
  const GidEntry* entry = nullptr;
  const Netdev* owner = nullptr;
};

// What may be done with a port in this netns.
struct PortUse {
  PortObstacle obstacle = PortObstacle::kNone;
  // RoCE only. Of RoCE v2 type, each with the up netdev of this netns that has its address; ascending index.
  std::vector<OwnGid> gids;
  // One example of each thing that keeps others from being used.
  const GidEntry* foreign = nullptr;
  OwnGid on_down_netdev;
  const GidEntry* unreadable = nullptr;
  const GidEntry* v1 = nullptr;

  bool usable() const { return obstacle == PortObstacle::kNone; }
};

// The addresses of this netns, for looking up GIDs. Not GidSearch, which only says when a table need not be read
// further: this one also answers for tables that came whole (a snapshot), and knows the netdevs that are down, which
// explain why a port is not used.
class OwnAddresses {
 public:
  // The inventory must outlive it and its answers.
  explicit OwnAddresses(const Inventory& inventory);
  PortUse use_of(const Port& port) const;

 private:
  const Netdev* find_owner(const Port& port, const Address& gid) const;
  void survey_gids(const Port& port, PortUse& use) const;

  const Inventory& inventory_;
  std::multimap<Address, const Netdev*> owners_;
};

// Of a port in a network namespace that gets a netdev of it with an address, whose GIDs are yet to come: they are of
// the types that its table has by now, of whichever namespace. What is not known of them stands in nobody's way.
PortObstacle obstacle_of_rail(const Hca& hca, const Port& port);

}  // namespace fabric
