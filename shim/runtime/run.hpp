// Entry point of rdma-runtime.
#pragma once

#include <string>

#include "shim/runtime/settings.hpp"

namespace shim {

// Executes the runtime and does not return. On failure writes to the engine's log and stderr, and returns 1. argv: ends
// with a nullptr. read: reads the configuration; called only if the ledger has no record of the container's runtime.
// ledger: the ledger's path, the same as in the result of read.
int run(char* const* argv, const std::string& ledger, const ReadSettings& read);

}  // namespace shim
