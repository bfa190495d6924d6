// The changes that a plan makes to one container, decided here once for all ways. The ways only write the changes:
// edit_spec() into config.json, nri_adjustment() into NRI's answer, live_steps() and run_steps() into a live container.
// `rdma-hook cdi generate` knows no container, and writes the plan's nodes and variables.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// A device node of the plan, and the device that the container already has at its path.
struct AdjustedNode {
  PlannedNode node;
  std::optional<SpecDevice> present = {};
  // Returns whether the container has this node. A device with another number at its path is an error for a way that
  // writes before the container exists: a program in the container would open another device.
  bool is_present() const {
    return present && present->type == 'c' && present->major == node.major && present->minor == node.minor;
  }
  friend bool operator==(const AdjustedNode&, const AdjustedNode&) = default;
};

struct Adjustment {
  std::vector<AdjustedNode> nodes = {};       // all nodes of the plan, because a present node may lack a device rule
  std::optional<std::uint64_t> memlock = {};  // at least this RLIMIT_MEMLOCK; nullopt: the container's is high enough
  std::vector<std::string> capabilities = {};
  std::vector<PlannedRdmaLimit> rdma_limits = {};
  std::map<std::string, std::string> env = {};  // variables to add, or to replace the container's own value
  std::vector<PlannedMount> mounts = {};
  std::string token = {};  // value of the annotation kGrantAnnotation; empty: none
  friend bool operator==(const Adjustment&, const Adjustment&) = default;
};

// Returns the parts of the plan that the container lacks. For a plan without HCAs, returns only the variables. A
// variable that the container sets stays, except a fact of the node (fabric::is_node_variable()). token: stands for the
// grant until createRuntime; without HCAs there is no grant to find by it. Pure.
Adjustment adjust(const Plan& plan, const ContainerSpec& spec, const std::string& token = "");

}  // namespace hook
