// `rdma-hook install`: sets an engine of the node up for RDMA, and takes that back.
#pragma once

#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "hook/install/plan_install.hpp"

namespace hook {

struct InstallOptions {
  std::string root;              // the node's files and programs are below it; "": they are this node's
  std::optional<Engine> engine;  // nullopt: the only one found
  std::optional<InstallWay> way;
  std::string programs;  // directory of rdma-runtime and rdma-hook
  bool dry_run = false;
  bool restart = false;
};

// Each returns what to print. The record is written before the first file and removed after the last: killed at any
// moment, install or uninstall completes. Installing twice changes nothing.
//
// Errors of install(): no engine or several; what plan_install() says; the engine refuses its configuration as it is or
// as it would be. Nothing is changed then.
fabric::Result<std::string> install(const InstallOptions& options);
// A file that somebody changed since is kept, and the error names it; the others are restored.
fabric::Result<std::string> uninstall(const InstallOptions& options);
fabric::Result<std::string> install_status(const std::string& root, bool json);

}  // namespace hook
