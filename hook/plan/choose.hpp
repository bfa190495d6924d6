// Which of the HCAs that a wish can be about the container gets, given who holds them.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/plan.hpp"
#include "hook/plan/pools.hpp"
#include "hook/plan/terms.hpp"

namespace hook {

struct ChosenHca {
  const NodeHca* node = nullptr;
  Terms terms;
};

struct Chosen {
  // One entry per unit: in shared-multi an HCA may be there several times, else once.
  std::vector<ChosenHca> units;
  std::vector<std::string> warnings;
};

// A list gives its HCAs in its order; "all" and a count in rail order. A count takes first what the container, or its
// pod, holds, then HCAs whose nodes it was given, then those with an ACTIVE port, and among equals those nearest to its
// GPUs. Errors are refusals: those of the candidates and terms_for(), and HCAs that have no room.
fabric::Result<Chosen> choose(const PlanInput& input);

}  // namespace hook
