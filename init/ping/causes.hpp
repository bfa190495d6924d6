// Names the broken object behind the pairs that failed: a rank, a rail of one rank or of several, a rail of all ranks,
// or the link between ranks. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

struct Cause {
  // In the order of a report: worst first.
  enum class Kind { kRank, kCables, kRail, kGroup, kRailOfRank, kLink };
  Kind kind = Kind::kLink;
  std::optional<unsigned> rank;   // rank of a kRank or kRailOfRank; lower rank of a kLink
  std::optional<unsigned> other;  // higher rank of a kLink
  std::vector<unsigned> rails;    // numbers of the rails, ascending; empty: not known
  std::optional<unsigned> rail;   // rail of all kinds but kRank and kCables; nullopt: all rails, except for kRailOfRank
  Layer layer = Layer::kGood;     // the first layer that failed
  std::size_t failed = 0;         // tests that failed by this cause
  std::size_t tested = 0;         // tests of this object
  std::string message;            // one line: names the object with host, device, netdev and GID, and the cause
  std::string remedy;             // one line, may be empty
  std::vector<unsigned> ranks;    // ranks of a kGroup, ascending
  std::vector<unsigned> unreached;  // ranks that a kGroup does not reach, ascending; empty: all other ranks
};

// Returns the causes, worst first. No other cause explains the same failures. An outcome is good if there are none.
std::vector<Cause> find_causes(const Outcome& outcome);

}  // namespace init::ping
