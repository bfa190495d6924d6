// Ends containers that the runtime does not end itself.
#pragma once

#include <sys/types.h>

#include <string>

#include "fabric/result.hpp"

namespace shim {

// Kills the first process of a container; one that is gone already is no error. Errors: pid 0 (the runtime did not say
// it), a process that is not in a cgroup of this container.
fabric::Result<void> end_container(const std::string& id, pid_t pid);

}  // namespace shim
