// The cgroup that tells whether anything of a container still runs, where its init alone does not tell.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// Whether a group of this path is the one that linux.cgroupsPath asks for: the path itself, below wherever the runtime
// may make groups, or "SLICE:PREFIX:NAME", a unit of systemd or a group in it.
bool is_named_by(std::string_view cgroups_path, std::string_view path);

// The container's own group: one that its config.json names, else one that is neither this process's, whom the engine
// started, nor around it. nullopt: its init is the first of a PID namespace of its own, with whom the kernel ends all
// others (pid_namespaces(7)); or the group is shared, with the engine or a pod. Errors: as device_cgroups().
Result<std::optional<CgroupIdentity>> own_cgroup(const ContainerSpec& spec, pid_t init);

}  // namespace hook
