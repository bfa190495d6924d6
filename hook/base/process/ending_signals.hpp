// SIGTERM and SIGINT as a descriptor, for a process that stays and waits in poll(2).
#pragma once

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Blocks both and returns a signalfd(2) of them, nonblocking. Called before there are threads, which inherit the mask.
// Errors: no descriptor or no memory is left.
Result<fabric::UniqueFd> ending_signals();

}  // namespace hook
