// Applies a plan to config.json before the container is created: devices, device rules, IPC_LOCK, RLIMIT_MEMLOCK, the
// sysfs view's mounts, RDMA_INIT_REQUIRE. Survives `systemctl daemon-reload` and exec, unlike a live change.
#pragma once

#include <optional>
#include <string>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Idempotent: what is there already is left alone. An entry of linux.devices at one of our paths with another number is
// an error. token: written as the grant's annotation, over whatever was there; empty: none. inherited: RLIMIT_MEMLOCK
// of a container that lists none, which is its runtime's; nullopt: not known. Pure; config is changed only on success.
// Members of a wrong type are errors, never overwritten.
Result<void> edit_spec(const Plan& plan, const std::string& token, Json& config,
                       const std::optional<Rlimit>& inherited = std::nullopt);

}  // namespace hook
