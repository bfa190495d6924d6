// Which of the HCAs that a wish can be about the container gets, given who holds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// On which terms the container would hold an HCA.
struct Terms {
  Mode mode = Mode::kHca;
  const Network* network = nullptr;  // nullptr: none, so no netdev
  std::optional<unsigned> limit;     // most units of one HCA that all holders together may have
};

// node.pool must not be null. Mode: the request's, else the network's, else the pool's first. Errors: the pool does not
// allow it, or config.json has no such network.
Result<Terms> terms_for(const NodeHca& node, const Request& request, const Config& config);

// The GID table of a RoCE port, which bounds child netdevs: each takes two slots, its link-local and its IPv4 address
// (Linux 6.1 drivers/infiniband/core/roce_gid_mgmt.c), and two more where the port has RoCE v1 entries as well.
struct GidSpace {
  unsigned slots = 0;
  unsigned used = 0;
  unsigned per_child = 2;
  unsigned children() const { return (slots - used) / per_child; }  // more than there are
  std::string text() const;                                         // "has 3 of 16 GID slots free, ..."
};
// nullopt: not known, or no RoCE port. The fullest of several ports counts: a child may be of either.
std::optional<GidSpace> gid_space(const fabric::Hca& hca);

// How many units the container may have, those it has already included, and what bounds them.
struct Room {
  unsigned units = 0;
  std::string why;    // what the HCA is or has: "is held by container web-1"; empty: nothing bounds them
  bool held = false;  // it is others that bound them
};
Room room_for(const NodeHca& node, const Terms& terms, const PlanInput& input);

struct ChosenHca {
  const NodeHca* node = nullptr;
  Terms terms;
};

struct Chosen {
  // One entry per unit: in shared-multi an HCA may be there several times, else once.
  std::vector<ChosenHca> units;
  std::vector<std::string> warnings;
};

// Why who has its physical function alone keeps it from others: "is a VF of mlx5_0, which is held by container web-1".
// "": it is no VF, or nobody else has.
std::string held_with_pf(const NodeHca& node, const PlanInput& input);

// A list gives its HCAs in its order; "all" and a count in rail order. A count takes first what the container, or its
// pod, holds, then HCAs whose nodes it was given, then those with an ACTIVE port, and among equals those nearest to its
// GPUs. Errors are refusals: those of the candidates, a mode that the pool does not allow, and HCAs that have no room.
Result<Chosen> choose(const PlanInput& input);

}  // namespace hook
