// Main loop of rdma-nri: connects, serves and reconnects.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "shim/nri/options.hpp"

namespace shim {

// Runs until SIGTERM or SIGINT, or, if the runtime started the program, until the runtime closes the connection. Waits
// for a runtime that is not running, with pauses of 0.1 s to 5 s. Errors: failures that waiting cannot resolve, such as
// an invalid NRI_PLUGIN_SOCKET.
Result<void> run_plugin(const NriPluginOptions& options, const base::Log& log);

// Kills the first process of a container, because runtimes ignore a plugin's request to evict it. Succeeds if the
// process is gone. Errors: pid is 0, because the runtime reported none; the process is not in a cgroup of this
// container; kill fails.
Result<void> end_container(const std::string& id, pid_t pid);

}  // namespace shim
