// Entry point of rdma-runtime.
#pragma once

#include <string>

#include "shim/runtime/settings.hpp"

namespace shim {

// Executes the runtime and does not return. On failure writes to the engine's log and stderr, and returns 1. argv: ends
// with a nullptr. read: called at most once, and not for a container with a recorded runtime. ledger: path of the
// ledger that `read` will return.
int run(char* const* argv, const std::string& ledger, const ReadSettings& read, const GrantInSpec& grant);

}  // namespace shim
