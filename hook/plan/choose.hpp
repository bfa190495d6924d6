// Chooses HCAs for a container from the candidates of its request, by their present grants.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// How the container would use an HCA.
struct Terms {
  Mode mode = Mode::kHca;
  const Network* network = nullptr;  // nullptr: the container gets no netdev
  std::optional<unsigned> limit;     // maximal number of units (see Room) of one HCA over all owners
};

// Returns the terms of an HCA. node.pool must not be null. Mode: that of the HCA's claim or of the request, else the
// network's, else the pool's first. Errors: the pool does not allow the mode, or the administrator's config.json does
// not have the network.
Result<Terms> terms_for(const NodeHca& node, const Request& request, const Config& config);

// The GID table of a RoCE port, which limits child netdevs. A child netdev needs two slots, for its link-local and its
// IPv4 address (Linux 6.1 drivers/infiniband/core/roce_gid_mgmt.c), and two more if the port also has RoCE v1 entries.
struct GidSpace {
  unsigned slots = 0;
  unsigned used = 0;
  unsigned per_child = 2;
  unsigned children() const { return (slots - used) / per_child; }  // the number of child netdevs that still fit
  std::string text() const;                                         // "has 3 of 16 GID slots free, ..."
};
// Returns the GID space of the fullest port of the HCA, because a child netdev can be on any port. Returns nullopt if
// no GID table is known completely, or if the HCA has no RoCE port.
std::optional<GidSpace> gid_space(const fabric::Hca& hca);

// The number of units of an HCA that the container may have, including units that it already has, and the reason of a
// limit. A unit is one child netdev of the HCA in mode shared-multi, and the HCA itself in all other modes.
struct Room {
  unsigned units = 0;
  std::string why;    // predicate of the HCA: "is held by container web-1"; empty: there is no limit
  bool held = false;  // the HCAs of other owners are the reason of the limit
};
Room room_for(const NodeHca& node, const Terms& terms, const PlanInput& input);

// Returns the bounds for an HCA of which a container with these terms requests `units`.
UnitBounds bounds_for(const Terms& terms, unsigned units = 1);
// Returns the bounds of each candidate, by its name; missing: the decision does not depend on a number. A VF of an HCA
// that can be allocated exclusively has the bounds of both.
std::map<std::string, UnitBounds> bounds_of(const Candidates& among);

// Returns whether the grants of the HCA itself leave a unit for the container. Part of room_for(): the HCA's PF, VFs
// and GID tables also limit the units.
bool has_place(const Terms& terms, const Holding& holding);

// Returns the HCAs of the shortlist of input.among that the container cannot get: an HCA that is not usable, or without
// a free unit.
std::vector<std::string> unavailable(const PlanInput& input, const std::vector<std::string>& shortlist);

struct ChosenHca {
  const NodeHca* node = nullptr;
  Terms terms;
};

struct Chosen {
  // One entry per unit: in shared-multi an HCA can have several, otherwise one.
  std::vector<ChosenHca> units;
  std::vector<std::string> warnings;
};

// Returns why a VF cannot be used because of its physical function: "is a VF of mlx5_0, which is held by container
// web-1". A VF also cannot be used if its physical function is in another network namespace, unless the requesting
// owner has a grant of the physical function. Returns "" if the HCA can be used or is no VF.
std::string held_with_pf(const NodeHca& node, const PlanInput& input);

// Chooses the HCAs of a request. A list keeps its order; "all" and a count use the order of rails. A count prefers HCAs
// that the container or its pod already has, then HCAs with device nodes in linux.devices, then HCAs with ACTIVE ports.
// Among equals it prefers HCAs near the container's GPUs.
// Errors (refusals): those of Candidates::matched; a mode that the pool does not allow; HCAs without free units.
Result<Chosen> choose(const PlanInput& input);

}  // namespace hook
