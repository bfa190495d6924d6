// `rdma-hook install`: sets an engine of the node up for RDMA, and takes that back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/plan.hpp"

namespace hook {

// Grants that are held, for whose release the programs on the node are needed.
struct HeldGrants {
  std::size_t count = 0;
  std::string stuck;  // why some of owners that have ended could not be released; empty: all owners are live
};

struct InstallOptions {
  std::string root;              // the node's files and programs are below it; "": they are this node's
  std::optional<Engine> engine;  // nullopt: the only one found
  std::optional<InstallWay> way;
  std::string programs;  // directory of rdma-runtime and rdma-hook
  // Of an image: which programs are put there, by path on the node, and the directory that they come from.
  std::vector<std::string> put;
  std::string put_from;
  // Releases what is stale, and says what is held still. Empty: nothing is.
  std::function<Result<HeldGrants>()> needed_by;
  bool dry_run = false;
  bool restart = false;
};

// Each returns what to print. The record is written before the first file and removed after the last: killed at any
// moment, install or uninstall completes. Installing twice changes nothing.
//
// Errors of install(): no engine or several; what plan_install() says; the engine refuses its configuration as it is or
// as it would be. Nothing is changed then.
// With `restart` the engine is restarted if it may not have read what is written now: it is called at each start of an
// image's pod.
Result<std::string> install(const InstallOptions& options);
// A file that somebody changed since is kept, and the error names it; the others are restored. Programs that were put
// go last, when the engine was restarted, which would start no container without them, and nobody needs them any more:
// until then that is an error, and calling it again completes it.
Result<std::string> uninstall(const InstallOptions& options);
Result<std::string> install_status(const std::string& root, bool json);

}  // namespace hook
