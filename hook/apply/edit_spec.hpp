// Applies a plan to config.json before the container is created: devices, device rules, IPC_LOCK, RLIMIT_MEMLOCK,
// mounts of the sysfs view, RDMA_INIT_REQUIRE. Unlike a live change, it survives `systemctl daemon-reload` and exec.
#pragma once

#include <optional>
#include <string>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Adds the plan to config.json. Existing correct entries stay. Idempotent and pure; config is changed only on success.
// token: value of the grant's annotation, which replaces a present one; empty: no annotation. inherited: RLIMIT_MEMLOCK
// of the runtime, which applies if config.json lists none; nullopt: unknown.
// Errors: linux.devices has a planned path with another number; a member has another type.
Result<void> edit_spec(const Plan& plan, const std::string& token, Json& config,
                       const std::optional<Rlimit>& inherited = std::nullopt);

}  // namespace hook
