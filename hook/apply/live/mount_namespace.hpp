// Runs a function in a child that has joined another mount namespace: setns(2) for a mount namespace changes the root
// and the working directory of the whole process, so it never happens in the hook itself.
#pragma once

#include <functional>

#include "fabric/result.hpp"

namespace hook {

// The function's error comes back with message, code and hint, cut to 2,000 bytes. The child dies with its parent.
fabric::Result<void> run_in_mount_namespace(int mount_namespace, const std::function<fabric::Result<void>()>& function);

}  // namespace hook
