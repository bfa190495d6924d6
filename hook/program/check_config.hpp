// `rdma-hook check-config`.
#pragma once

#include "hook/config/config.hpp"

namespace hook {

// Prints every problem with its place and remedy, or what is configured, on stdout. Answers with the exit code: 0, also
// with warnings; 1 with errors or files that cannot be read.
int check_config(const ConfigPaths& paths, bool json);

}  // namespace hook
