// Makes SIGTERM and SIGINT readable from a descriptor, for a process that runs until it gets one of them and waits in
// poll(2).
#pragma once

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Blocks SIGTERM and SIGINT and returns a nonblocking signalfd(2) for them. Call it before threads are created, because
// each thread inherits the blocked signals. Errors: no descriptor or no memory is left.
Result<fabric::UniqueFd> ending_signals();

}  // namespace hook
