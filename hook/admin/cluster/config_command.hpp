// The command `rdma-hook config apply`. The ConfigMap is foreign text, so each function reads it behind a seccomp
// filter.
#pragma once

#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Applies the configuration in the directory `source` and prints its problems as check-config does. Logs an event line
// for each change and each refusal. Returns the exit code: 0, applied or unchanged; 1, refused. Errors: the filter
// cannot be set.
Result<int> apply_config(const std::string& source, const NodeSettings& node, bool json, const Log& log);

// Applies the configuration again after each change of the directory or of the node's own files, until SIGTERM or
// SIGINT. Prints and logs only what changed. Returns 0. Errors: the filter cannot be set; there is no descriptor for
// signals.
Result<int> watch_config(const std::string& source, const NodeSettings& node, const Log& log);

// Prints whether the node has the configuration of the directory. Returns the exit code: 0, yes; 1, no. Errors: the
// filter cannot be set.
Result<int> probe_config(const std::string& source, const NodeSettings& node);

}  // namespace hook
