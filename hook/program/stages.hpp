// Runs the stages createRuntime, verify and poststop for the container that the OCI state on stdin names.
#pragma once

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/grant.hpp"

namespace hook {

// Runs prestart or createRuntime: grants the requested HCAs. A container without a request is not changed.
Result<void> create_runtime(Call& call, const Result<Config>& config);

// Checks the changes of rdma-nri to a container, because the engine continues without them if rdma-nri does not answer.
// Grants no HCA, but sets the limits of RDMA objects: rdma-nri has no cgroup for them.
// Errors: the container requested HCAs and has no grant; check_granted_nodes().
Result<void> verify(Call& call, const Result<Config>& config);

// Releases the container's HCAs; for a container of a pod, only its part of the pod's grant. A missing grant is no
// error, because the container's removal must not fail.
Result<void> poststop(Call& call);

}  // namespace hook
