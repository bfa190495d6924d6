// What happens before rdma-runtime becomes the runtime: the files that the engine wrote for it are edited.
#pragma once

#include "hook/base/process/identity.hpp"
#include "shim/result.hpp"
#include "shim/runtime/choose.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/log.hpp"
#include "shim/runtime/settings.hpp"

namespace shim {

// Of a container that is about to be made. create and run: books for a container that asks, and edits its config.json.
// One that asks nothing keeps its file, untouched; one that was edited before and asks nothing any more gets its own
// back. restore: the grant of a container ended with its checkpoint, and who comes back has all that config.json says:
// what a container was given, which our hook at poststop tells, is booked again, and its view made. Behind crun, which
// runs no hooks then, config.json stays as it is; else the hook at createRuntime binds what was booked. Errors: the
// container must not start.
Result<void> prepare_new(const Behind& behind, const Settings& settings, const GrantInSpec& grant,
                         const hook::ProcessIdentity& self, const RuntimeLog& log);

// exec: edits the process of a container that was edited. What goes wrong is a warning: probes and shells of a running
// container have to go on.
void prepare_exec(const Invocation& invocation, Dialect dialect, const hook::ProcessIdentity& self,
                  const RuntimeLog& log);

}  // namespace shim
