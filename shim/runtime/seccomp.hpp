// Whether a container's seccomp profile lets RDMA work. Engines' own profiles do, those that users write often do not,
// and what fails then is a library deep below the trainer, with EPERM. Pure.
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
  std::string_view who;   // needs it
};
// What libibverbs, NCCL, UCX and libnuma call beyond what every program does.
std::span<const NeededCall> needed_calls();

// For the members `includes` and `excludes` of a rule. They are Docker's, which resolves them before it writes
// config.json; a profile file has them.
struct SeccompContext {
  std::string_view architecture;          // in their words: "amd64", "arm64"
  std::vector<std::string> capabilities;  // of the bounding set
};

// Those of the needed calls that this linux.seccomp refuses: by its default, or by a rule without conditions on
// arguments. Of rules with conditions an allowing one counts as allowing and a refusing one as nothing, so that what is
// returned is refused for sure. SCMP_ACT_NOTIFY and SCMP_ACT_TRACE leave it to another process: not refused. A value
// that is no profile refuses nothing.
std::vector<NeededCall> refused_calls(const hook::Json& seccomp, const SeccompContext& context);

// "" for none. One line, with the remedy.
std::string seccomp_warning(std::span<const NeededCall> refused);

// Allows them in config.json's linux.seccomp: takes their names out of rules without conditions that refuse them, and
// adds one rule. No profile: nothing. Errors: a member of a wrong type; nothing is changed then.
Result<void> allow_calls(std::span<const NeededCall> calls, hook::Json& config);

}  // namespace shim
