// The commands of rdma-hook: runs one, prints its result, and answers with the exit code.
#pragma once

#include "hook/program/options.hpp"

namespace hook {

// 0 done, 1 refused or failed (said on stderr; `plan --json` says it on stdout).
int run_command(const Options& options);

}  // namespace hook
