// SIGTERM and SIGINT as a descriptor, for a process that keeps running and waits in poll(2).
#pragma once

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Blocks both signals and returns a nonblocking signalfd(2) for them. Call it before threads are created, because they
// inherit the mask. Errors: no descriptor or no memory is left.
Result<fabric::UniqueFd> ending_signals();

}  // namespace hook
