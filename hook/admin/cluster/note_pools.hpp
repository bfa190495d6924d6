// Notes the state of the pools with "expect": which ones this node has, for programs that look after a reboot, and
// whether they are complete, as a label of the Kubernetes node.
#pragma once

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Counts the HCAs of each pool with "expect". Adds the pools that have an HCA to the file seen_pools_file(), and
// removes pools that the configuration lacks. Writes the label `complete`, or removes it if no pool is counted. The
// label stays as it is if the ledger's directory is missing, because HCAs of containers would then count as missing.
// Without "expect", only removes the label. Errors: those of read_pool_counts(), after which nothing is changed; a file
// cannot be written.
base::Result<void> note_pools(const NodeSettings& node, const Config& config);

}  // namespace hook
