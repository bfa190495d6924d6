// Reads some netdevs of this network namespace, at a cost that does not grow with its other netdevs: a node with
// hundreds of pods has as many netdevs, and its ports concern a few.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric::netlink {

struct FindNetdevs {
  std::vector<std::string> names;
  std::vector<int> ifindexes = {};
  // Returns the names of the netdevs that are stacked directly on a netdev of `names`, or on one that this function
  // returned before. nullopt: not known. Without this function, only masters are found.
  std::function<std::optional<std::vector<std::string>>(const Netdev& lower)> uppers_of = {};
};

// Reads the named netdevs, those with an ifindex, and the netdevs above them, with addresses and ascending ifindex. A
// netdev that does not exist here is left out. Returns nullopt if the kernel is older than Linux 4.20, if there are too
// many netdevs, or if any request fails; the caller then reads all netdevs.
std::optional<std::vector<Netdev>> find_netdevs(const FindNetdevs& wanted);

}  // namespace fabric::netlink
