// Whether a container needs rdma-hook at createRuntime. A container with such a hook, whatever it does, is a tenth
// longer in `runc create`; where rdma-runtime gave everything and the runtime behind tells who is alive, it goes
// without.
#pragma once

#include <optional>

#include "hook/grant/asking.hpp"
#include "hook/ledger/runtime_state.hpp"
#include "shim/runtime/choose_runtime.hpp"
#include "shim/runtime/edit_bundle.hpp"

namespace shim {

// What only a live container can be given, or tell.
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

// Where the runtime behind will tell whether the container lives. nullopt, and the container needs the hook: it is
// neither runc nor crun by the name of its program, its root is not known for sure, or not there yet. make_root: it is
// made then, as the runtime would.
std::optional<hook::RuntimeState> state_behind(const Behind& behind, bool make_root = false);

}  // namespace shim
