// Who holds what, and what a container gets then. Deciding writes nothing: booking.hpp does.
#pragma once

#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/match.hpp"

namespace hook {

// The HCAs that a request can be about. No other process decides about them as long as this lives.
struct LockedHoldings {
  LockedHcas locks;
  Holdings holdings;
};
// root: prefix of the node's /sys. Errors: the ledger's; EAGAIN where another process keeps a lock.
fabric::Result<LockedHoldings> lock_holdings(const Asking& asking, const Candidates& among, const Ledger& ledger,
                                             const Owner& owner, const std::string& root);

// view_directory, variables: as PlanInput has them. root: prefix of the /sys that tells the cgroup controllers;
// nullopt: none does. asking.request: there is one. Of the live system only namespaces and, for a plan with limits,
// controllers are looked at. Errors: as make_plan(), rdma_controller().
fabric::Result<Plan> decide(const Asking& asking, const Candidates& among, const Holdings& holdings,
                            const std::string& view_directory, bool variables, const std::optional<std::string>& root);

}  // namespace hook
