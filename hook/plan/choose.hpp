// Which of the HCAs that a wish can be about the container gets, given who holds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// On which terms the container would hold an HCA.
struct Terms {
  Mode mode = Mode::kHca;
  const Network* network = nullptr;  // nullptr: none, so no netdev
  std::optional<unsigned> limit;     // most units of one HCA that all holders together may have
};

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
fabric::Result<Chosen> choose(const PlanInput& input);

}  // namespace hook
