// Reads the machine (or a snapshot), waits for what is pending, decides. The one place where rdma-init meets time.
#pragma once

#include <optional>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "init/decision.hpp"
#include "init/log.hpp"
#include "init/options.hpp"

namespace init {

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
