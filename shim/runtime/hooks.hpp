// The hooks that rdma-runtime adds to the container's config.json, in addition to the edits of hook::edit_spec():
// always the poststop hook, which releases the grant; the createRuntime hook if hook_need() requires it.
// linux.netDevices (runc 1.4, crun 1.22) is not used: the runtime would move a netdev without its routes, rules and
// RDMA device, and would not restore it. The createRuntime hook moves all of them, and restores them from a record.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/oci/engine.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// Command line of rdma-hook.
struct HookCommand {
  std::string path = "/usr/local/bin/rdma-hook";  // absolute path of rdma-hook
  hook::Engine engine = hook::Engine::kRunc;
  std::vector<std::string> options;  // the options after --engine NAME
};

// Returns true if config already has a hook at createRuntime or prestart that runs the program of `command`.
bool has_create_hook(const HookCommand& command, const base::Json& config);
// Returns true if config already has a hook at poststop that runs the program of `command`.
bool has_poststop_hook(const HookCommand& command, const base::Json& config);

enum class HookStages { kPoststop, kBoth };
// Appends poststop, and createRuntime for kBoth, to the hooks of the container's config.json. Skips a stage at which
// config already runs the same program. After an error, config has a part of the hooks and is useless. Errors: `hooks`
// or a stage has a wrong type.
Result<void> add_hooks(const HookCommand& command, HookStages stages, base::Json& config);

// Reasons for which a container needs rdma-hook at createRuntime. Any hook at this stage makes `runc create` about 10 %
// slower. A container without such a reason runs without the hook.
enum class HookNeed {
  kNone,
  kThereAlready,  // config.json already has the hook, which finds a booking only by its token (token_owner())
  kRails,         // the container may get netdevs, and its network namespace does not exist before createRuntime
  kRdmaLimits,    // crun ignores linux.resources.rdma, so rdma-hook must set the limits
  kOwnView,       // a user namespace: only a process outside of it can mount the view (an overlay)
  kSharedPids,    // processes of a container without an own PID namespace outlive init: record the cgroup
};
// Returns the first reason that applies. requesting.document: the container's config.json. Pure, except for a stat(2)
// that compares two program paths.
HookNeed hook_need(const hook::ContainerRequest& requesting, const HookCommand& command, Dialect dialect);

}  // namespace shim
