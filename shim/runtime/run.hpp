// rdma-runtime from the first line to exec(2).
#pragma once

#include <string>

#include "shim/runtime/settings.hpp"

namespace shim {

// Does not return, but becomes the runtime, unless something is wrong: 1, and it is said in the engine's log and on
// stderr. argv ends with a nullptr. read: called at most once, and not for a container whose runtime is known. ledger:
// what it will name.
int run(char* const* argv, const std::string& ledger, const ReadSettings& read, const GrantInSpec& grant);

}  // namespace shim
