// The driver for Dynamic Resource Allocation: registers with the kubelet, publishes the node's HCAs, and prepares and
// unprepares claims.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "shim/dra/names.hpp"
#include "shim/dra/show.hpp"

namespace shim {

// Runs until SIGTERM or SIGINT. Waits while the kubelet or the API server does not answer, and while the configuration
// is invalid. Errors: the name of the node or the address of the API server is not valid; the process that talks to the
// API server cannot be started, or has ended.
Result<void> run_driver(DraSettings settings, const base::Log& log);

}  // namespace shim
