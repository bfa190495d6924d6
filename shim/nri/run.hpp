// Main loop of rdma-nri: connects, serves and reconnects.
#pragma once

#include <sys/types.h>

#include <string>

#include "hook/base/log.hpp"
#include "shim/nri/options.hpp"
#include "shim/result.hpp"

namespace shim {

// Runs until SIGTERM or SIGINT, or, if the runtime started the program, until the runtime closes the connection. Waits
// for a runtime that is not running, with pauses of 0.1 s to 5 s. Errors: failures that waiting cannot resolve, such as
// an invalid NRI_PLUGIN_SOCKET.
Result<void> run_plugin(const NriPluginOptions& options, const hook::Log& log);

// Kills the first process of a container that the runtime itself does not evict. A process that is gone is not an
// error. Errors: pid 0, which means that the runtime reported none; a process that is not in a cgroup of this
// container.
Result<void> end_container(const std::string& id, pid_t pid);

}  // namespace shim
