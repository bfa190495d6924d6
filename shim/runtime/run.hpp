// rdma-runtime from the first line to exec(2).
#pragma once

#include "shim/runtime/settings.hpp"

namespace shim {

// Does not return, but becomes the runtime, unless something is wrong: 1, and it is said in the engine's log and on
// stderr. argv ends with a nullptr.
int run(char* const* argv, const Settings& settings, const GrantInSpec& grant);

}  // namespace shim
