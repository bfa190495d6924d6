// Finds the GID, address or HCA for which rdma-init waits.
#pragma once

#include <optional>
#include <string>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/settings.hpp"

namespace init {

// Returns one line with the pending resource; nullopt: nothing is pending, so waiting cannot help. Pending are:
//  - an openable, active Ethernet port without a usable GID, or with a link-local one only, while this network
//    namespace has an address without a GID. The address must be on the port's own netdev, or on a macvlan, ipvlan,
//    vlan or bond that may be stacked on it.
//  - with --cidr, --family (or NCCL_IB_ADDR_FAMILY=AF_INET6) or --hca: a port that does not match yet, if its netdev is
//    in this namespace. A storage NIC must not delay the start: if another port matches, a port that has only addresses
//    outside the CIDR is not pending.
//  - HCAs that --require or --require-used still needs: device nodes, carrier and addresses may all appear later.
//    On a node without an RDMA driver no HCA is pending.
// Pure.
std::optional<std::string> find_pending(const fabric::Inventory& inventory, const Settings& settings,
                                        const Policy& policy);

}  // namespace init
