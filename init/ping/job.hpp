// One rank of the test: reads this container, meets the other ranks, and executes the command after a good result.
#pragma once

#include "init/log.hpp"
#include "init/ping/options.hpp"

namespace init::ping {

// Returns the exit code. Returns only if there is no command to execute, or it cannot be executed.
int run(const Options& options, char* const* environment, const Log& log);

}  // namespace init::ping
