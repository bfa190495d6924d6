// Writes an adjustment into the container's config.json before the container is created. Changes in config.json survive
// `systemctl daemon-reload`, and also apply to processes that `exec` starts. Changes of the live container (apply/live)
// do not.
#pragma once

#include <optional>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "hook/apply/adjustment.hpp"

namespace hook {

// Adds the adjustment to the container's config.json, and the device rules that its nodes need. A stricter RDMA limit,
// a higher RLIMIT_MEMLOCK and correct entries stay. Idempotent except for mounts, and pure. After an error, config has
// a part of the adjustment and is useless: a copy in advance would cost more than the edit. inherited: RLIMIT_MEMLOCK
// of the runtime, which applies if config.json lists none; nullopt: unknown. Errors: linux.devices has the path of a
// node with another number; a node has no known number; a member has another type.
Result<void> edit_spec(const Adjustment& adjustment, Json& config,
                       const std::optional<Rlimit>& inherited = std::nullopt);

}  // namespace hook
