// What rdma-hook does at each stage of a container, from the state on stdin.
#pragma once

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// prestart and createRuntime. Success without a change for a container that asks nothing.
Result<void> create_runtime(Call& call, const Result<Config>& config);

// A hook beside rdma-nri, which a runtime goes on without when it does not answer: success for a container that asks
// nothing, or has its grant and the nodes of it; an error for one that asked and has none, or another HCA's node.
// Grants nothing, but sets limits of RDMA objects, for which rdma-nri has no cgroup.
Result<void> verify(Call& call, const Result<Config>& config);

// Returns what the container held; for a container of a pod only its part in the pod's grant. Success also when nothing
// was held or is known: teardown must not fail.
Result<void> poststop(Call& call);

}  // namespace hook
