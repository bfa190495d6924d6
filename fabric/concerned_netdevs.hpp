// The part of this network namespace that concerns the choice of ports: the ports' netdevs, the netdevs above them, and
// the netdev of the default route.
#pragma once

#include <optional>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace fabric {

// Returns true if this process can use the port with a GID of its own network namespace.
bool is_open_roce(const Hca& hca, const Port& port);

// Reads the netdevs of this network namespace with their addresses. Returns nullopt if there are many for this number
// of HCAs, unless all is true. Errors: no netlink socket (seccomp, gVisor), or a failed dump.
Result<std::optional<std::vector<Netdev>>> read_few_netdevs(bool all, std::size_t hcas);

// Reads the default routes into the inventory, which has the HCAs already. few: the result of read_few_netdevs(). If it
// is nullopt, reads also the netdevs that concern the ports. Returns true if it left netdevs out. Errors: those of
// read_few_netdevs().
Result<bool> read_concerned_network(std::optional<std::vector<Netdev>> few, Inventory& inventory);

}  // namespace fabric
