// `rdma-hook install`: configures an engine of the node for RDMA, and removes this configuration again.
#pragma once

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/plan.hpp"

namespace hook {

// Grants that still exist. The programs on the node are needed to release them.
struct HeldGrants {
  std::size_t count = 0;
  std::string stuck;  // why stale grants could not be released; empty: there are no stale grants
};

// Error code of install if it can set nothing up on this node: no engine, a way that the engine does not support, or a
// distribution that generates the engine's configuration.
inline constexpr int kUnsupportedNode = EOPNOTSUPP;

struct InstallOptions {
  std::string root;                         // prefix of the node's files and programs; "": this node
  std::optional<Engine> engine;             // nullopt: choose_engine() selects
  std::optional<std::string> distribution;  // in place of an engine: see distribution.hpp
  std::optional<InstallWay> way;
  std::string programs;  // directory of rdma-runtime and rdma-hook on the node
  // When install runs in an image: the programs to copy, as paths on the node.
  std::vector<std::string> put;
  std::string put_from;  // directory in the image from which they are copied
  // Releases stale grants and returns the grants that remain. An empty function: grants are not checked.
  std::function<Result<HeldGrants>()> needed_by;
  bool dry_run = false;  // returns only diffs of the files and changes nothing
  bool restart = false;
  bool force = false;  // uninstall: drops changes that were made to the files since install
};

// Each function returns the text to print. The record is written before the first file and removed after the last file.
// A later install or uninstall can therefore complete a call that was killed. A second install changes nothing.
//
// install() writes the files of the plan. While the engine may not have read the files, each call with `restart`
// restarts the engine, and each other call reports that a restart is due. The pod of an image therefore calls install()
// at each start.
// On a node of a distribution only programs are copied, after the administrator has added the distribution's lines.
// install() and uninstall() label the node: label_node().
// lines: gets the lines that the administrator has to merge by hand, if a distribution does not have them.
// Errors: kUnsupportedNode, nothing can be set up; choose_engine(), plan_install(); the engine refuses its present or
// its new configuration; a file cannot be written. After these errors the files are restored; the message names each
// file that could not be restored. EIO: the restart failed, and the written files stay.
// Locks: one install or uninstall at a time, flock(2) of ROOT/etc.
Result<std::string> install(const InstallOptions& options, std::string& lines);
// Restores the files that install wrote. Programs that were copied are removed last: an engine that has not read the
// restored files starts no container without them, and live grants need them for their release. Until then the call
// fails with EBUSY, and the next call completes it.
// Errors: EEXIST names files that were changed since install and are kept; the other files are restored. See
// restore_files() for changes that stay, and for `force`.
Result<std::string> uninstall(const InstallOptions& options);
// Returns the record of the installation and the state of each file, as text or JSON. Errors: read_install_record().
Result<std::string> install_status(const std::string& root, bool json);

}  // namespace hook
