// RLIMIT_MEMLOCK of a process that already runs: the first process of a container, before it becomes the workload.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fabric/result.hpp"

namespace hook {

// Raises soft and hard limit to bytes (UINT64_MAX: unlimited); never lowers them. Without CAP_SYS_RESOURCE the hard
// limit stays and the soft one is raised to it: the returned warning says what the container has then. Errors: there is
// no such process.
fabric::Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes);

}  // namespace hook
