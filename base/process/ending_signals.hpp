// Makes SIGTERM and SIGINT readable from a descriptor, for a process that runs until it gets one of them and waits in
// poll(2).
#pragma once

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Blocks SIGTERM and SIGINT and returns a nonblocking signalfd(2) for them. Call it before threads are created, because
// each thread inherits the blocked signals. Errors: no descriptor or no memory is left.
Result<UniqueFd> ending_signals();

}  // namespace base
