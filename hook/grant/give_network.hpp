// The rails of a container's plan, once its network namespace exists.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/grant/call.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct NetworkTarget {
  std::string netns_path = {};  // "/var/run/netns/cni-1", "/proc/PID/ns/net"; empty: there is none yet, so no rails
  bool hurried = false;         // as RailsInput::hurried
};

// After booking: what fails here is undone when the booking is. Nodes of the plan get the numbers that their RDMA
// devices have inside. Errors: as give_rails(), about the network.
fabric::Result<void> give_network(const Asking& asking, const Grantee& who, const NetworkTarget& target,
                                  const fabric::Inventory& inventory, const Ledger& ledger, Call& call, Plan& plan);

}  // namespace hook
