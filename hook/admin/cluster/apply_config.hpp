// `rdma-hook config apply`: copies the cluster's configuration to the node's cluster/config.json if it is valid
// together with the node's own files. Otherwise the last valid configuration stays.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Checks that this node's part of each network's ranges of addresses, MAC addresses and GUIDs ("per_node") can be
// determined. Returns one problem for each network for which it cannot. A netdev that is not visible, because it is in
// a container or in another network namespace, is not a problem. by_address: gets "rail 0: 7" for each slice that is
// found by an address of the node; nullptr: the caller does not need the slices.
std::vector<ConfigProblem> slice_problems(const Config& config, const NodeSettings& node, const std::string& file,
                                          std::vector<std::string>* by_address = nullptr);

struct AppliedConfig {
  enum class Outcome {
    kWritten,
    kSame,     // the file already has this content
    kDue,      // the text is valid and differs from the file; only check_cluster_config() returns this
    kRefused,  // `problems` has the reasons; the file is unchanged
  };
  Outcome outcome = Outcome::kRefused;
  std::vector<ConfigProblem> problems;  // errors and warnings about the configuration
  std::string digest;                   // digest of the cluster's text; empty: no text
  std::string index;  // "17 from NODE_NAME gpu-17": this node's index; empty: it needs none, or the text was refused
  std::string has;    // text for the log that describes the node's configuration after the call
};

// Checks the cluster's text as apply_cluster_config() does, without the lock and without a change of the file.
AppliedConfig check_cluster_config(const std::string& directory, const NodeSettings& node);

// Reads DIRECTORY/config.json and the node's files (node.config, with absolute paths). If DIRECTORY/config.json is
// valid and differs from the file node.config.cluster, replaces that file by renaming a temporary file. Returns errors
// as `problems` with kRefused. Locks: for a write, a lock file in the directory of that file, which only root can open.
AppliedConfig apply_cluster_config(const std::string& directory, const NodeSettings& node);

}  // namespace hook
