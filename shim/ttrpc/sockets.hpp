// The two ways to a runtime's NRI socket.
#pragma once

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace shim {

// Connects to a stream socket, e.g. /var/run/nri/nri.sock. The runtime makes it anew each time it starts. Errors carry
// errno: ENOENT and ECONNREFUSED say that it does not run.
fabric::Result<fabric::UniqueFd> connect_socket(const std::string& path);

// The socket that a runtime hands to a plugin it launches. number: the value of NRI_PLUGIN_SOCKET. Errors: not the
// number of an open stream socket.
fabric::Result<fabric::UniqueFd> launched_socket(std::string_view number);

}  // namespace shim
