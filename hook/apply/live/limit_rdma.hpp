// Limits of a container's HCAs, written into rdma.max of its cgroup.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/process/cgroup.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// The text that lowers what rdma.max says to the limit; nullopt: it is as low already. Pure.
std::optional<std::string> lowering_line(std::string_view rdma_max, const PlannedRdmaLimit& limit);

// Lowers the limits of one group; what is lower already stays. directory: of the group. Returns warnings: the group has
// no rdma.max, or the caller may not write it. Errors: the device is gone, other failures of the file.
fabric::Result<std::vector<std::string>> limit_rdma_in(const Cgroup& cgroup,
                                                       const std::vector<PlannedRdmaLimit>& limits);

// The same in the cgroup of a container's first process. A container that shares the caller's cgroup gets no limit but
// a warning, because that would limit the engine and its other containers.
fabric::Result<std::vector<std::string>> limit_rdma(pid_t init, const std::vector<PlannedRdmaLimit>& limits);

}  // namespace hook
