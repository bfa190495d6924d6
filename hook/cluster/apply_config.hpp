// `rdma-hook config apply`: copies a cluster's configuration into the node's cluster/config.json, if it is good
// together with the node's own files. Otherwise the last good one stays.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Whether this node's part of each subnet can be told: one problem for each network of which it cannot. A netdev that
// cannot be seen, because it is in a container or this process in another network namespace, is not missed.
std::vector<ConfigProblem> slice_problems(const Config& config, const NodeSettings& node, const std::string& file);

struct AppliedConfig {
  enum class Outcome {
    kWritten,
    kSame,     // the file says so already
    kRefused,  // as `problems` say; the file is as it was
  };
  Outcome outcome = Outcome::kRefused;
  std::vector<ConfigProblem> problems;  // warnings, too
  std::string digest;                   // of the cluster's text; empty: there is none
  std::string has;                      // what the node has now, for people
};

// Reads DIRECTORY/config.json and the node's files (node.config, whose paths are absolute), and replaces
// node.config.cluster by a temporary beside it that is renamed, if the text differs. Locks the directory of the file
// meanwhile. Errors are refusals.
AppliedConfig apply_cluster_config(const std::string& directory, const NodeSettings& node);

}  // namespace hook
