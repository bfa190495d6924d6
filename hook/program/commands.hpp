// The commands of rdma-hook.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/program/options.hpp"

namespace hook {

// Runs a command and prints its result. Returns the exit code: 0, done; 1, refused or failed, with the error on stderr
// (`plan --json`: on stdout too). doctor returns 1 for warnings and 2 for broken. install returns 3 if it can set
// nothing up on this node. poststop always returns 0.
int run_command(const Options& options);

// `check-config`: prints each problem with its place and remedy, or a summary, on stdout. Returns the exit code: 0, no
// errors (warnings are allowed); 1, errors, or a file cannot be read.
// nodes: the file that lists the nodes.
int check_config(const NodeSettings& node, bool json, const std::optional<std::string>& nodes = std::nullopt);

// `cdi generate`: prints the specification, or with --out replaces that file by rename(2). Does not write an identical
// file, because engines watch the directory. First removes temporaries of killed processes from the directory. Errors:
// cdi_spec(); the file cannot be written.
Result<void> generate_cdi(const Options& options, const Log& log);

// `config generate`: prints the configuration for the nodes of --snapshot, or for this node. Logs its warnings. Errors:
// a snapshot cannot be read; those of generate_config().
Result<void> print_generated_config(const Options& options, const Log& log);

// Returns the path that engines execute as a hook: --hook, or else the path of this program. Errors: --hook is
// relative; the path of this program cannot be read.
Result<std::string> hook_path(const Options& options);

// `base-spec`: reads the output of `ctr oci spec` from stdin, adds rdma-hook by edit_base_spec() and prints the result.
Result<void> print_base_spec(const Options& options);

}  // namespace hook
