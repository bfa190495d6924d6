// What a container would get: read and decide, without booking or changing anything. createRuntime and `rdma-hook plan`
// foresee in the same way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/base/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

struct ForeseeInput {
  const Asking& asking;  // request: there is one
  const Owner& owner;
  const NodeSettings& node;
  const Ledger* ledger = nullptr;  // nullptr: nothing is held
  bool variables = false;          // the container's can still be given, and mounts in its config.json
};

// The node as the request needs it, with the HCAs that are in the owner's network namespace. warnings: gets what stays
// unknown. Errors: as read_node_for(), add_own_hcas().
Result<fabric::Inventory> read_for(const ForeseeInput& input, std::vector<std::string>& warnings);

struct ForeseenPlan {
  Plan plan;
  // The HCAs that the request can be about. No other process decides about them as long as this lives. nullopt: without
  // a ledger.
  std::optional<LockedHcas> locks;
  std::vector<std::string> own = {};  // names of the HCAs that the owner holds already
};

// inventory: as read_for() gives it. What the container's config.json mounts already is not in the plan. Errors: the
// ledger's; EAGAIN where another process keeps a lock; as make_plan(), uses_host_network(), rdma_controller().
Result<ForeseenPlan> foresee(const ForeseeInput& input, const fabric::Inventory& inventory);

// As foresee(), of HCAs that are bound to the owner: looks at no other holder, and locks nothing. nullopt: they do not
// suffice any more.
Result<std::optional<Plan>> foresee_bound(const ForeseeInput& input, const fabric::Inventory& inventory,
                                          const Grant& bound);

}  // namespace hook
