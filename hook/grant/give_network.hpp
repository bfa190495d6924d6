// The rails of a container's plan, once its network namespace exists.
#pragma once

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/grant/decide.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/stages.hpp"

namespace hook {

struct NetworkTarget {
  std::string user;        // key of the container in the grant
  std::string netns_path;  // "/var/run/netns/cni-1", "/proc/PID/ns/net"
  bool hurried = false;    // as RailsInput::hurried
};

// After booking: what fails here is undone when the booking is. Nodes of the plan get the numbers that their RDMA
// devices have inside. Errors: as give_rails().
fabric::Result<void> give_network(const Container& container, const NetworkTarget& target,
                                  const fabric::Inventory& inventory, const Ledger& ledger, const Owner& owner,
                                  Call& call, Plan& plan);

}  // namespace hook
