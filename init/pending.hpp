// Whether something that this container needs is still on its way, so that waiting can help. Pure.
#pragma once

#include <optional>
#include <string>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

// One line naming what is awaited; nullopt when nothing is pending, and then nothing is waited for:
//  - an openable, active Ethernet port without a usable GID (or with a link-local one only), while this netns has an
//    address without a GID on the port's own netdev, or on a macvlan, ipvlan, vlan or bond that may be over it;
//  - --cidr, --family (or NCCL_IB_ADDR_FAMILY=AF_INET6) or --hca was given, and a port whose netdev is in this netns
//  does not match yet. Once another
//    port matches, a port that has its addresses, all outside of the CIDR, is settled: a storage NIC is not waited for;
//  - --require is not reached: nodes, carrier and addresses may all still come.
std::optional<std::string> find_pending(const fabric::Inventory& inventory, const Settings& settings,
                                        const Policy& asked);

}  // namespace init
