// Decides which facts of the node a plan needs. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/rdma_sysfs.hpp"
#include "fabric/read_node.hpp"
#include "hook/config/config.hpp"
#include "hook/request/request.hpp"

namespace hook {

// Returns whether the plan depends on a number that counts all HCAs of the node, so that an HCA that the inventory does
// not show changes the plan: `index:N`, or the number of a rail. inventory: read by read_options().
bool counts_all_hcas(const Request& request, const Config& config, const fabric::Inventory& inventory);

// Returns whether these numbers depend on the names of all HCAs: `index:N`, and rails of a list of names only.
bool counts_names(const Request& request, const Config& config);

// Returns `facts` plus the facts that pools and "rails" use as selectors.
fabric::HcaFacts facts_of_pools(const Config& config, fabric::HcaFacts facts = {.node = false});

struct ContainerNetwork {
  bool variables = false;               // variables can still be added: RDMA_INIT_REQUIRE needs the usable ports
  bool in_nodes = false;                // the container is in the node's network namespace
  const std::set<std::string>& brings;  // netdevs that the runtime moves into the container's namespace
};

// Returns the facts of all HCAs that rank() needs.
fabric::HcaFacts ranking_facts(const Request& request, const Config& config);

// Returns options for reading the facts of the node that the plan needs. The caller must set the option `root`. hcas:
// the requested HCAs; nullopt: all.
fabric::NodeReadOptions read_options(const Request& request, const Config& config,
                                     std::optional<std::vector<std::string>> hcas, const ContainerNetwork& container);

}  // namespace hook
