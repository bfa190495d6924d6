// Reads the machine (or a snapshot), waits for what is pending, decides. The one place where rdma-init meets time.
#pragma once

#include <optional>
#include <string>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "init/decision.hpp"
#include "init/log.hpp"
#include "init/options.hpp"

namespace init {

// Whether something that this container needs is still on its way, so that waiting can help. Pure.

// One line naming what is awaited; nullopt when nothing is pending, and then nothing is waited for:
//  - an openable, active Ethernet port without a usable GID (or with a link-local one only), while this netns has an
//    address without a GID on the port's own netdev, or on a macvlan, ipvlan, vlan or bond that may be over it;
//  - --cidr, --family (or NCCL_IB_ADDR_FAMILY=AF_INET6) or --hca was given, and a port whose netdev is in this netns
//  does not match yet. Once another
//    port matches, a port that has its addresses, all outside of the CIDR, is settled: a storage NIC is not waited for;
//  - --require is not reached: nodes, carrier and addresses may all still come.
std::optional<std::string> find_pending(const fabric::Inventory& inventory, const Settings& settings,
                                        const Policy& asked);

struct Resolved {
  fabric::Inventory inventory;
  Settings settings;
  Decision decision;
  std::optional<int> stopped_by;  // the signal that ended the waiting: leave with 128+n
};

// full: read everything the snapshot format knows (doctor, topo, snapshot).
// Errors: an unreadable snapshot. Nothing else fails: what is missing is in the decision.
fabric::Result<Resolved> resolve(const Options& options, const char* const* environment, const Log& log, bool full);

}  // namespace init
