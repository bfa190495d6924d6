// Netdevs, addresses and routes of this network namespace by rtnetlink.
#pragma once

#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"

namespace fabric::netlink {

struct Network {
  std::vector<Netdev> netdevs;  // every netdev of this netns, ascending ifindex
  std::vector<Route> routes;    // default routes of the main table; with all_routes every route of every table
};

// Errors: no netlink socket (seccomp, gVisor), a dump that failed.
Result<Network> read_network(bool all_routes);

}  // namespace fabric::netlink
