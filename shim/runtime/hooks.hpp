// What rdma-runtime adds to config.json beyond hook::edit_spec(): the hook that takes everything back, and where it is
// needed (hook_need()) the one that finishes the job when the container's namespaces exist.
// No linux.netDevices (runc 1.4, crun 1.22), also where the runtime knows it: the runtime would move a netdev without
// its routes, rules and RDMA device, and give nothing back; the createRuntime hook does all of that, from a record.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/grant/asking.hpp"
#include "hook/oci/engine.hpp"
#include "shim/result.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// How rdma-hook is to be called.
struct HookCommand {
  std::string path = "/usr/local/bin/rdma-hook";  // absolute
  hook::Engine engine = hook::Engine::kRunc;
  std::vector<std::string> options;  // after --engine NAME
};

// The same file is a hook at createRuntime there already; prestart counts for it.
bool has_create_hook(const HookCommand& command, const hook::Json& config);
// And at poststop.
bool has_return_hook(const HookCommand& command, const hook::Json& config);

enum class HookStages { kPoststop, kBoth };
// Adds poststop, and createRuntime for both, each behind what is there, unless the same file does that stage there
// already. config is changed only on success; errors: `hooks` or a stage of a wrong type.
Result<void> add_hooks(const HookCommand& command, HookStages stages, hook::Json& config);

// Why a container needs rdma-hook at createRuntime: what only a live container can be given, or tell. A container with
// such a hook, whatever it does, is a tenth longer in `runc create`; where rdma-runtime gave everything and the runtime
// behind tells who is alive, it goes without.
enum class HookNeed {
  kNone,
  kThereAlready,  // config.json has the hook already, and what it finds booked has to be a token
  kRails,         // netdevs: there is no network namespace before
  kRdmaLimits,    // crun ignores linux.resources.rdma
  kOwnView,       // an overlay in a user namespace, which has to be made outside of it
  kSharedPids,    // its init is not the end of all its processes: its own cgroup has to be noted
};
// Pure, but for a look at whether two paths are one program. The first that holds. asking.document: its config.json.
HookNeed hook_need(const hook::Asking& asking, const HookCommand& command, Dialect dialect);

}  // namespace shim
