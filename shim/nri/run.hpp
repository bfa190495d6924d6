// rdma-nri's life: connect, serve, and connect again.
#pragma once

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "shim/nri/options.hpp"

namespace shim {

// Until SIGTERM or SIGINT, or of a plugin that the runtime started until that closes the connection. A runtime that is
// not there, or goes away, is waited for: pauses of 0.1 s at first, up to 5 s. Errors: what no waiting mends, such as
// NRI_PLUGIN_SOCKET without a socket.
fabric::Result<void> run_plugin(const NriPluginOptions& options, const hook::Log& log);

}  // namespace shim
