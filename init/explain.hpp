// The words for a decision: why a port is used, why nothing is left, and what would help. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "init/candidates.hpp"
#include "init/choice.hpp"
#include "init/decision.hpp"

namespace init {

struct Cause {
  std::string reason;  // one line; empty if there is nothing to explain
  std::string remedy;  // empty if none is known
};

std::string rank_name(GidRank rank);
// "mlx5_0:1, mlx5_1:1"
std::string list_ports(const std::vector<Candidate>& candidates, const std::vector<std::size_t>& ports);

// gid: the one it will use; nullptr on InfiniBand.
PortReport report_used(const Candidate& candidate, const UsableGid* gid);
PortReport report_unused(const Candidate& candidate, const std::string& reason);

// What keeps the ports that are not usable from being so: the obstacle that is nearest to use, since its remedy helps
// most.
Cause explain_missing(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates);

// Why no port was chosen.
Cause explain_none(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates, const Choice& choice,
                   const std::optional<fabric::SelectorList>& asked);

// uses: the GIDs of the node's addresses that are used, as text; at least one.
std::string warn_of_node_gids(std::vector<std::string> uses);

}  // namespace init
