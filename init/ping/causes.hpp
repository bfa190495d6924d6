// Names the broken object behind the pairs that failed: a rank, a rail of one rank, a rail of all ranks, or the link
// between two ranks. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

struct Cause {
  enum class Kind { kRank, kRailOfRank, kRail, kLink };
  Kind kind = Kind::kLink;
  std::optional<unsigned> rank;   // kRank, kRailOfRank; kLink: the lower rank
  std::optional<unsigned> other;  // kLink: the higher rank
  std::optional<unsigned> rail;   // kRailOfRank, kRail, kLink
  Layer layer = Layer::kGood;     // the first layer that failed
  std::size_t failed = 0;         // tests that failed by this cause
  std::size_t tested = 0;         // tests of this object
  std::string message;            // one line: names the object with host, device, netdev and GID, and the cause
  std::string remedy;             // one line, may be empty
};

// Returns the causes, worst first: ranks before rails before links. A good outcome has no causes.
std::vector<Cause> find_causes(const Outcome& outcome);

}  // namespace init::ping
