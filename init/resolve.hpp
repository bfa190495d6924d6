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

struct Resolved {
  fabric::Inventory inventory;
  Settings settings;  // values of nccl.conf as the known version of NCCL reads them
  Decision decision;
  std::optional<int> stopped_by;  // the signal that ended the wait: exit with 128+n
  Lent lent = {};                 // the lent libraries, applied to the decision
};

// Reads, waits and decides. Errors: an unreadable snapshot. All other failures are in the decision.
base::Result<Resolved> resolve(const Options& options, const char* const* environment, const Log& log);
// Does the same for this machine, whatever snapshot the options name. A program without resolve() links no parser of
// snapshots.
Resolved resolve_machine(const Options& options, const char* const* environment, const Log& log);

}  // namespace init
