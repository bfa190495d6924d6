// Checks whether a container's seccomp profile allows the system calls of RDMA programs. Profiles of engines allow
// them, profiles of users often do not: a library deep below the trainer then fails with EPERM. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/json/json.hpp"
#include "shim/result.hpp"

namespace shim {

struct NeededCall {
  std::string_view name;  // of the system call
  std::string_view who;   // library that needs it
};
// Returns the system calls that libibverbs, NCCL, UCX and libnuma use in addition to those of every program.
std::span<const NeededCall> needed_calls();

// Values for the members `includes` and `excludes` of a rule. Only Docker's profile files have these members: Docker
// resolves them before it writes the container's config.json.
struct SeccompContext {
  std::string_view architecture;          // Docker's name: "amd64", "arm64"
  std::vector<std::string> capabilities;  // of the bounding set
};

// Returns the needed calls that linux.seccomp refuses by its default action, or by a rule without conditions on
// arguments. A conditional rule that allows a call counts as allowing it; a conditional rule that refuses does not
// count. So each call that is returned is always refused. SCMP_ACT_NOTIFY and SCMP_ACT_TRACE leave the decision to
// another process and do not count as refusal. A value that is not a profile refuses nothing.
std::vector<NeededCall> refused_calls(const hook::Json& seccomp, const SeccompContext& context);

// Returns one line with the remedy; empty if nothing is refused.
std::string seccomp_warning(std::span<const NeededCall> refused);

// Allows the calls in linux.seccomp of the container's config.json: removes them from unconditional rules that refuse
// them, and adds one rule. Does nothing without a profile. Errors: a member has a wrong type; config is then unchanged.
Result<void> allow_calls(std::span<const NeededCall> calls, hook::Json& config);

}  // namespace shim
