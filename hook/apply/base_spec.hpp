// containerd's base specification, its template of every container's config.json, with rdma-hook in it.
#pragma once

#include <string>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"

namespace hook {

inline constexpr const char* kBaseSpecRemedy = "`ctr oci spec | rdma-hook base-spec` is how it is meant";

// Adds to what `ctr oci spec` prints the hooks that a container begins with, createRuntime and poststop, and an
// unlimited RLIMIT_MEMLOCK; verify: rdma-hook verify alone, because rdma-nri gives the limit. The limit of `ctr oci
// spec`, 1024 open files, goes; others stay. hook: rdma-hook's path, absolute; one that was there is replaced.
// Idempotent. Pure; spec is changed only on success. Errors: members that are missing or of a wrong type, with the
// remedy.
Result<void> edit_base_spec(const std::string& hook, bool verify, Json& spec);

}  // namespace hook
