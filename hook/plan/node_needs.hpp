// What a plan needs to know of the node. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/rdma_sysfs.hpp"
#include "fabric/read_inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/request/request.hpp"

namespace hook {

// What pools select HCAs by, added to `facts`.
fabric::HcaFacts facts_of_pools(const Config& config, fabric::HcaFacts facts = {.node = false});

struct ContainerNetwork {
  bool variables = false;               // the container's can still be given, so that it counts which ports it can use
  bool in_nodes = false;                // it is in the node's network namespace
  const std::set<std::string>& brings;  // netdevs that its runtime moves into it
};

// Returns what to read of the node. `root` is the caller's to set. hcas: that the request is about; nullopt: all.
fabric::NodeReadOptions read_options(const Request& request, const Config& config,
                                     std::optional<std::vector<std::string>> hcas, const ContainerNetwork& container);

}  // namespace hook
