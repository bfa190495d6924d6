// Whether this node finds its slice of the ranges that are for all nodes (`per_node`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

struct NodeIndexSources {
  std::optional<std::string> root;  // prefix of the file's path; nullopt: the node's files are not at hand
  bool knows_addresses = false;     // the inventory has those of the node's netdevs
  std::optional<std::string> name;  // NODE_NAME as it is here; nullopt: not set, which says nothing of the programs'
};

// What a container would be refused for. Nothing where it cannot be told from here: a note.
std::vector<Finding> check_node_index(const fabric::Inventory& inventory, Config config, const NodeIndexSources& from);

// Ranges of MAC addresses and GUIDs that are smaller than the functions are many whose pool gives them this network.
std::vector<Finding> check_vf_ranges(const fabric::Inventory& inventory, const Config& config);

}  // namespace hook
