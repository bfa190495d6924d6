// Reads the machine or a snapshot, waits for pending resources, and decides. Only this part of rdma-init depends on
// time.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/lent.hpp"
#include "init/log.hpp"
#include "init/options.hpp"

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

struct Resolved {
  fabric::Inventory inventory;
  Settings settings;  // values of nccl.conf as the known version of NCCL reads them
  Decision decision;
  std::optional<int> stopped_by;  // the signal that ended the wait: exit with 128+n
  Lent lent = {};                 // the lent libraries, applied to the decision
};

// Reads, waits and decides. Errors: an unreadable snapshot. All other failures are in the decision.
base::Result<Resolved> resolve(const Options& options, const char* const* environment, const Log& log);

}  // namespace init
