// Finds the cgroup that shows whether processes of a container still run after its init has ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// Returns whether linux.cgroupsPath of config.json names the cgroup `path`. A plain cgroupsPath names each path that
// ends with it, because the runtime may put it below any directory. "SLICE:PREFIX:NAME" names the systemd unit
// PREFIX-NAME.scope (NAME if it ends with .slice) and the cgroups in it.
bool is_named_by(std::string_view cgroups_path, std::string_view path);

// Returns the container's own cgroup: the first cgroup of its init that its config.json names, or that is neither the
// cgroup of this process nor an ancestor of it. (The engine started this process, so such a cgroup is the engine's.)
// Returns nullopt if there is no such cgroup. Also returns nullopt if the container has its own PID namespace, because
// the kernel then ends all its processes with its init (pid_namespaces(7)). Errors: those of device_cgroups().
Result<std::optional<CgroupIdentity>> own_cgroup(const ContainerSpec& spec, pid_t init);

}  // namespace hook
