// The commands of rdma-hook.
#pragma once

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/log.hpp"
#include "hook/base/result.hpp"
#include "hook/program/options.hpp"

namespace hook {

// Runs one, prints its result, and answers with the exit code:
// 0 done, 1 refused or failed (said on stderr; `plan --json` says it on stdout).
int run_command(const Options& options);

// `check-config`: prints every problem with its place and remedy, or what is configured, on stdout. Answers with the
// exit code: 0, also with warnings; 1 with errors or files that cannot be read.
int check_config(const ConfigPaths& paths, bool json, const std::optional<std::string>& nodes = std::nullopt);

// [{"file", "line" (null: the file as a whole), "severity": "error" or "warning", "message", "remedy"}]
Json problems_json(const std::vector<ConfigProblem>& problems);

// `config apply`: applies what the directory has, and with --watch again whenever that or the node's own files change,
// until SIGTERM or SIGINT. Prints problems as check-config does, with --watch once as long as they stay the same; log
// gets an event line of each change and refusal. Answers with the exit code: 0, also when nothing was to be done or a
// signal ended it; 1, refused.
int apply_config(const Options& options, const Log& log);

// `cdi generate`: prints the specification, or with --out writes it to that file: whole or not at all, and not touched
// when it says the same already, since engines watch the directory. Errors: as cdi_spec(); the file cannot be written.
// First sweeps the file's directory.
Result<void> generate_cdi(const Options& options, const Log& log);

// What engines will start as a hook: --hook, else this program, where it is. Errors: that cannot be found out.
Result<std::string> hook_path(const Options& options);

// `base-spec`: reads what `ctr oci spec` prints on stdin, and prints it with rdma-hook in it (edit_base_spec()).
Result<void> print_base_spec(const Options& options);

// Removes from a directory of CDI files what killed processes were writing there; `recover` does so where engines read.
void sweep_cdi(const std::string& path, const Log& log);

}  // namespace hook
