// `rdma-hook config apply`: what a cluster says becomes the node's config.json, if it is good; else the last good one
// stays.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// What would become of the node's file. Pure.
struct ConsideredConfig {
  std::string text;                     // the file as it is to be
  Config config;                        // with the drop-ins; when no problem is an error
  std::vector<ConfigProblem> problems;  // of the cluster's text, or of what it would be together with the node's own
};
// present: what the node has, config.json at the path `file`, if it is there, and the drop-ins, which stand over both.
ConsideredConfig consider_config(const ConfigText& cluster, const std::vector<ConfigText>& present,
                                 const std::string& file);

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

// Reads DIRECTORY/config.json and the node's files (node.config, whose `file` is absolute), and replaces the node's
// config.json, by a temporary beside it that is renamed, where that says something else. Locks the directory of the
// file meanwhile. Errors are refusals.
AppliedConfig apply_cluster_config(const std::string& directory, const NodeSettings& node);

}  // namespace hook
