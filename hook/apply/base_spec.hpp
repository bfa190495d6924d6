// Adds rdma-hook to containerd's base specification, the template of every container's config.json.
#pragma once

#include <string>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"

namespace hook {

inline constexpr const char* kBaseSpecRemedy = "run `ctr oci spec | rdma-hook base-spec`";

// Edits the output of `ctr oci spec`: adds the hooks createRuntime and poststop, and an unlimited RLIMIT_MEMLOCK.
// verify: adds only the createRuntime hook `rdma-hook verify` and no RLIMIT_MEMLOCK, because rdma-nri sets that limit.
// Removes the limit of 1024 open files that `ctr oci spec` adds; other limits stay. hook: absolute path of rdma-hook.
// Hooks of rdma-hook that `spec` already has are removed first.
// Idempotent and pure; spec is changed only on success. Errors: a member is missing or has another type. The hint is
// the remedy.
Result<void> edit_base_spec(const std::string& hook, bool verify, Json& spec);

}  // namespace hook
