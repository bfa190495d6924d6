// Adds the rails of a plan to a container, once its network namespace exists.
#pragma once

#include <string>

#include "base/result.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct NetworkTarget {
  std::string netns_path = {};  // "/var/run/netns/cni-1", "/proc/PID/ns/net"; empty: no namespace yet, so no rails
  bool hurried = false;         // as in RailsInput
};

// Adds the rails. Call it after the booking: the roll-back of the booking also restores the rails. Sets the numbers of
// the plan's device nodes to those of the RDMA devices inside the namespace. Errors, with the reason kNetwork: as
// add_rails(); the namespace or the ledger cannot be read.
base::Result<void> add_network(const ContainerRequest& requesting, const Grantee& who, const NetworkTarget& target,
                               const fabric::Inventory& inventory, const Ledger& ledger, Call& call, Plan& plan);

}  // namespace hook
