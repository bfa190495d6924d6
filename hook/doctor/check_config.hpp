// What the node says of its configuration: its slice of the ranges that are for all nodes (`per_node`), the sizes of
// ranges, and limits of RDMA objects. Pure, but for the file of NodeIndexSources.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/config/config.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

// A warning for each pool of config.json with HCAs of this node that containers share without "hca_objects", and one
// for limits that the node cannot set. controller: nullopt: not looked at.
std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<fabric::Result<RdmaController>>& controller);

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
