// Which ports a container in a network namespace can use, its device nodes aside. Pure, from that namespace's
// inventory. rdma-init counts these for --require, and rdma-hook what rdma-init will count.
#pragma once

#include <map>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

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
