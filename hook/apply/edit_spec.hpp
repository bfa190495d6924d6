// Applies a plan to the container's config.json before the container is created: devices, device rules, RDMA limits,
// IPC_LOCK, RLIMIT_MEMLOCK, mounts of the sysfs view, variables. Changes in config.json survive `systemctl
// daemon-reload`, and also apply to processes that `exec` starts. Changes of the live container (apply/live) do not.
#pragma once

#include <optional>
#include <string>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Adds the plan to the container's config.json. For a plan without HCAs, adds only the variables. Existing correct
// entries stay. Idempotent except for mounts, and pure. After an error, config has a part of the plan and is useless:
// a copy in advance would cost more than the edit. token: value of the
// annotation kGrantAnnotation, which replaces a present value; empty: no annotation. inherited: RLIMIT_MEMLOCK of the
// runtime, which applies if config.json lists none; nullopt: unknown. Errors: linux.devices has a planned path with
// another number; a planned node has no known number; a member has another type.
Result<void> edit_spec(const Plan& plan, const std::string& token, Json& config,
                       const std::optional<Rlimit>& inherited = std::nullopt);

}  // namespace hook
