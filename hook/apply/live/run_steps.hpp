// Carries out the steps of live_steps() on a live container.
//
// Everything below the container's root is resolved by openat2(2) from one pinned descriptor, in one forked child that
// has joined the container's mount namespace; nothing there is followed, whatever the image put there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/apply/live/pin_container.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

// In order, but all files at once, in the place of the first of them: that they can be made shows that the process is
// of this bundle. Each step is idempotent. The first error ends it: the caller fails the start, and runtime and kernel
// throw away the container's mounts, cgroup and process. Returns warnings: what could not be done, without failing the
// container.
fabric::Result<std::vector<std::string>> run_steps(const LiveContainer& container, const std::vector<Step>& steps,
                                                   Engine engine);

// live_steps() and run_steps() of a plan; nothing for a plan of nothing. root: prefix of the node's /dev. Returns
// warnings. Errors: as both.
fabric::Result<std::vector<std::string>> apply_live(const Plan& plan, const ContainerSpec& spec,
                                                    const LiveContainer& container, Engine engine,
                                                    const std::string& root);

// RLIMIT_MEMLOCK of a process that already runs: the first one of a container, before it becomes the workload. Raises
// soft and hard limit to bytes (UINT64_MAX: unlimited); never lowers them. Without CAP_SYS_RESOURCE the hard
// limit stays and the soft one is raised to it: the returned warning says what the container has then. Errors: there is
// no such process.
fabric::Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes, Engine engine);

// Runs a function in a child (run_in_child()) that has joined another mount namespace: setns(2) changes the root and
// the working directory of the whole process, so it never happens in the hook itself.
fabric::Result<void> run_in_mount_namespace(int mount_namespace, const std::function<fabric::Result<void>()>& function);

}  // namespace hook
