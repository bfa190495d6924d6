// The commands of rdma-dra: they show the slices that a driver for Dynamic Resource Allocation publishes for this node,
// and the HCAs of a claim.
#pragma once

#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"
#include "shim/dra/slices.hpp"

namespace shim {

struct DraSettings {
  bool help = false;
  bool version = false;
  bool slices = false;
  std::optional<std::string> claim;  // path of a file with a ResourceClaim; "-": the standard input
  SliceCluster cluster;              // an empty node: NODE_NAME, else the name of this host
  hook::NodeSettings node;
};

// Prints the ResourceSlices of the node as a List, and logs a warning for each HCA that is left out or has a taint.
// Changes nothing. Errors: the name of the node is not valid; the configuration, the ledger or the HCAs cannot be read.
Result<void> show_slices(DraSettings settings, const base::Log& log);

// Prints the HCAs that a claim has on this node, with mode and network, one a line. Changes nothing. Errors: those of
// show_slices(), parse_claim() and claimed_hcas(); an HCA is in no pool, or its pool does not allow mode or network.
Result<void> show_claim(DraSettings settings);

}  // namespace shim
