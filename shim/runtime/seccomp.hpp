// Checks whether a container's seccomp profile allows the system calls of RDMA programs. The default profiles of
// engines allow them. Profiles that users write often do not, and a library of the training program then fails with
// EPERM. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.hpp"
#include "base/json/tree.hpp"
#include "base/result.hpp"

namespace shim {

struct NeededCall {
  std::string_view name;  // name of the system call
  std::string_view who;   // the library that needs the system call
};
// Returns the system calls that libibverbs, NCCL, UCX, NVSHMEM and libnuma need and that a profile may refuse.
std::span<const NeededCall> needed_calls();

// Returns the needed calls that linux.seccomp refuses by its default action, or by a rule without conditions on
// arguments. A rule with conditions counts only if it allows the call. So a returned call is refused for all arguments.
// SCMP_ACT_NOTIFY and SCMP_ACT_TRACE leave the decision to another process and do not count as refusal. If seccomp is
// not a profile, the result is empty. The members `includes` and `excludes` of a rule do not count: Docker resolves
// those of its profile files before it writes the container's config.json.
std::vector<NeededCall> refused_calls(const base::JsonNode& seccomp);
std::vector<NeededCall> refused_calls(const base::Json& seccomp);

// Returns a warning of one line with its remedy; empty if `refused` is empty.
std::string seccomp_warning(std::span<const NeededCall> refused);

// Allows `calls` in linux.seccomp of the container's config.json: removes these system calls from unconditional rules
// that refuse them, and adds one rule that allows them. Does nothing without a profile. Errors: a member has a wrong
// type; config is then unchanged.
Result<void> allow_calls(std::span<const NeededCall> calls, base::Json& config);

}  // namespace shim
