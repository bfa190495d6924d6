// Work that may take long, or come to harm, away from the plugin: in a child process, for so long and no longer. What a
// runtime gets is then always an answer in time; a late one it takes for none, and starts the container with nothing.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "fabric/result.hpp"

namespace shim {

// Runs it in a child, which has nothing of this process' descriptors but 0 to 2 and is killed when this process dies,
// and returns what it returns: a text of at most 4 MiB, or an error (message, code, hint). At the deadline the child is
// killed (ETIMEDOUT): the work has to be of a kind that survives that. Also errors: a child that ends without an
// answer.
fabric::Result<std::string> run_in_child(const std::function<fabric::Result<std::string>()>& work,
                                         std::chrono::steady_clock::time_point deadline);

}  // namespace shim
