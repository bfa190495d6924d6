// rdma-nri's life: connect, serve, and connect again.
#pragma once

#include <sys/types.h>

#include <string>

#include "hook/base/log.hpp"
#include "shim/nri/options.hpp"
#include "shim/result.hpp"

namespace shim {

// Until SIGTERM or SIGINT, or of a plugin that the runtime started until that closes the connection. A runtime that is
// not there, or goes away, is waited for: pauses of 0.1 s at first, up to 5 s. Errors: what no waiting mends, such as
// NRI_PLUGIN_SOCKET without a socket.
Result<void> run_plugin(const NriPluginOptions& options, const hook::Log& log);

// For containers that the runtime does not end itself: kills the first process of one; one that is gone already is no
// error. Errors: pid 0 (the runtime did not say it), a process that is not in a cgroup of this container.
Result<void> end_container(const std::string& id, pid_t pid);

}  // namespace shim
