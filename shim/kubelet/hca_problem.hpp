// Why Kubernetes must not assign an HCA at present. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/plan.hpp"

namespace shim {

// Kinds of problems, as parts of the names of taints.
inline constexpr const char* kHeldProblem = "held";  // by an owner that Kubernetes does not know
inline constexpr const char* kNodeProblem = "no-device-node";
inline constexpr const char* kLinkProblem = "link-down";

struct HcaProblem {
  std::string text;       // predicate of the HCA: "has no device node"; empty: no problem
  bool may_pass = false;  // the problem may end by itself within seconds
  const char* kind = "";  // one of the constants below; "": another problem, or none
};

// Returns the problem that an HCA has as a whole, and therefore each of its units. nodes: its planned device nodes.
// input: its holdings are those of owners outside of Kubernetes.
HcaProblem problem_of(const hook::NodeHca& node, const hook::Terms& terms,
                      const Result<std::vector<hook::PlannedNode>>& nodes, const hook::PlanInput& input);

// Returns the device nodes of an HCA. Errors: it has no uverbs node; a node could not be read.
Result<std::vector<hook::PlannedNode>> nodes_of_hca(const hook::NodeHca& node, const hook::Candidates& among);

// Returns the free and used slots of the GID table for child netdevs. nullopt: no limit, because the mode adds no child
// netdevs, the pool has no network, or gid_space() returns nothing.
std::optional<hook::GidSpace> gids_of_children(const hook::NodeHca& node, const hook::Terms& terms);

}  // namespace shim
