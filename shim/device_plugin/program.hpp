// The command line of rdma-device-plugin.
#pragma once

#include <span>

namespace shim {

// Does what the arguments, without the name of the program, say. Returns the exit code of the process.
int device_plugin_program(std::span<char* const> arguments);

}  // namespace shim
