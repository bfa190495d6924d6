// Finds the cgroup that proves whether processes of a container still run after its init has ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// Returns whether a cgroup of this path is the one of linux.cgroupsPath: the path itself, below any directory of the
// runtime, or "SLICE:PREFIX:NAME", a systemd unit or a cgroup in it.
bool is_named_by(std::string_view cgroups_path, std::string_view path);

// Returns the container's own cgroup: one that its config.json names, otherwise one that is neither the cgroup of this
// process, which the engine started, nor an ancestor of it. Returns nullopt if the container's init is the first
// process of its own PID namespace, because the kernel ends all other processes with it (pid_namespaces(7)); or if the
// cgroup is shared with the engine or a pod. Errors: as device_cgroups().
Result<std::optional<CgroupIdentity>> own_cgroup(const ContainerSpec& spec, pid_t init);

}  // namespace hook
