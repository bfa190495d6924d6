// The part of this network namespace that concerns the choice of ports: the ports' netdevs, the netdevs above them, and
// the netdev of the default route.
#pragma once

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace fabric {

// Returns true if this process can use the port with a GID of its own network namespace.
bool is_open_roce(const Hca& hca, const Port& port);

// Reads netdevs with addresses, and the default routes, into the inventory, which has the HCAs already. all: read all
// netdevs. Otherwise reads only the netdevs that concern the ports if this namespace has many. Returns true if
// it left netdevs out. Errors: no netlink socket (seccomp, gVisor), or a failed dump.
Result<bool> read_concerned_network(bool all, Inventory& inventory);

}  // namespace fabric
