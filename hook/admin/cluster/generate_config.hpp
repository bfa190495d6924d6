// The configuration for `rdma-hook config generate`, made from one or more nodes. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/words.hpp"
#include "fabric/inventory.hpp"

namespace hook {

struct NamedNode {
  std::string name;  // for comments and messages
  fabric::Inventory inventory;
};

// The system that starts the containers.
enum class StartedBy { kAny, kKubernetes, kDocker, kPodman, kSlurm };
inline constexpr Word<StartedBy> kStarters[] = {{"kubernetes", StartedBy::kKubernetes},
                                                {"docker", StartedBy::kDocker},
                                                {"podman", StartedBy::kPodman},
                                                {"slurm", StartedBy::kSlurm}};

struct GenerateWishes {
  StartedBy started_by = StartedBy::kAny;
  // Adds a network with child netdevs. The values that no node shows are texts that check-config refuses with their
  // line.
  bool rails = false;
};

struct GeneratedConfig {
  std::string text;                   // JSON with a "$comment" for each decision
  std::vector<std::string> warnings;  // nodes that differ, and HCAs that are down
};

// Returns one configuration that grants exactly the HCAs of fabric_hcas() on each node. Never contains an address that
// no node has. nodes: at least one. Errors: no node has an HCA; no selectors separate the HCAs on all nodes; with
// `rails`, a subnet has no room for containers or differs between nodes.
Result<GeneratedConfig> generate_config(const std::vector<NamedNode>& nodes, const GenerateWishes& wishes);

}  // namespace hook
