// On which terms a container would hold an HCA, and whether there is room.
#pragma once

#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

struct Terms {
  Mode mode = Mode::kHca;
  const Network* network = nullptr;  // nullptr: none, so no netdev
  std::optional<unsigned> limit;     // most units of one HCA that all holders together may have
};

// node.pool must not be null. Mode: the request's, else the network's, else the pool's first. Errors: the pool does not
// allow it, or config.json has no such network.
fabric::Result<Terms> terms_for(const NodeHca& node, const Request& request, const Config& config);

// How many units the container may have, those it has already included, and what bounds them.
struct Room {
  unsigned units = 0;
  std::string why;    // what the HCA is or has: "is held by container web-1"; empty: nothing bounds them
  bool held = false;  // it is others that bound them
};

// In shared-multi the GID table of a RoCE port bounds the children: each takes two slots, its link-local and its IPv4
// address (Linux 6.1 drivers/infiniband/core/roce_gid_mgmt.c), and two more where the port has RoCE v1 entries as well.
Room room_for(const NodeHca& node, const Terms& terms, const Holdings& holdings);

}  // namespace hook
