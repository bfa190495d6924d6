// The command line of rdma-dra.
#pragma once

#include <span>

namespace shim {

// Does what the arguments, without the name of the program, say. Returns the exit code of the process.
int dra_program(std::span<char* const> arguments);

}  // namespace shim
