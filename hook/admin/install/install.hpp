// `rdma-hook install`: configures an engine of the node for RDMA, and removes this configuration again.
#pragma once

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {

// Grants that still exist. Their release needs the programs on the node.
struct HeldGrants {
  std::size_t count = 0;
  std::string stuck;                     // why stale grants could not be released; empty: all stale grants are released
  std::vector<std::string> claims = {};  // labels of the prepared claims among them: "claim NAMESPACE/NAME"
};

// Error code of install if it can set up nothing on this node: no engine is installed, the engine does not support the
// way, or a distribution generates the engine's configuration.
inline constexpr int kUnsupportedNode = EOPNOTSUPP;

struct InstallOptions {
  std::string root;                         // prefix of the node's files and programs; "": this node
  std::optional<Engine> engine;             // nullopt: choose_engine() selects
  std::optional<std::string> distribution;  // k3s, RKE2, microk8s or kSlurm, in place of `engine`
  std::optional<InstallWay> way;
  std::string programs;  // directory of rdma-runtime and rdma-hook on the node
  // If install runs in an image: the programs to copy, as paths on the node.
  std::vector<std::string> put;
  std::string put_from;  // directory in the image from which `put` is copied
  // Releases stale grants, except for a dry run, and returns the grants that remain. If the function is empty,
  // uninstall does not check grants.
  std::function<Result<HeldGrants>()> needed_by;
  bool dry_run = false;  // true: return the diffs of the files and change nothing
  bool restart = false;
  bool force = false;  // true: uninstall drops changes that were made to the files since install
};

// Each function below returns the text to print. With dry_run, install() and uninstall() also fail if the same call
// without it would fail; `lines` then gets what that call would do. Only missing permissions of another user than root
// are no error of a dry run. install() writes the record before the first file, and uninstall()
// removes the record after the last file, so a later call can complete a call that was killed. A second install()
// writes no file again.
//
// install() writes the files of the plan. While the engine may not have read the files, each call with `restart`
// restarts the engine, and each call without it reports that a restart is due. A pod that installs from an image can
// therefore call install() at each start.
// On a node of a distribution such as k3s, install() only copies programs. Before, the administrator must add the lines
// of rdma-init to the distribution's template or drop-in.
// install() and uninstall() label the node with node_label.hpp's label_node().
// lines: gets the lines that the administrator must add, if the distribution's configuration does not have these lines.
// Errors: kUnsupportedNode, nothing can be set up; errors of choose_engine() and plan_install(); the engine refuses its
// present or its new configuration; a file cannot be written. After an error the files are restored; the message names
// each file that could not be restored. EIO: the restart failed; the written files stay.
// Locks: one install or uninstall at a time, by lock_out_others().
Result<std::string> install(const InstallOptions& options, std::string& lines);
// Restores the files that install wrote. Removes copied programs last: an engine that has not read the restored files
// cannot start containers without the programs, and existing grants need the programs for their release. While a
// restart is due or a grant exists, the call keeps the programs and fails with EBUSY; a later call removes the
// programs.
// Errors: EEXIST, the message names files that were changed since install and are kept; the other files are restored.
// See restore_files() for changes that stay, and for `force`.
Result<std::string> uninstall(const InstallOptions& options, std::string& lines);
// Returns the record of the installation and the state of each file, as text or JSON. Errors: read_install_record().
Result<std::string> install_status(const std::string& root, bool json);

}  // namespace hook
