// Edits the files that the engine wrote for its runtime, before rdma-runtime executes that runtime.
#pragma once

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/log.hpp"
#include "shim/runtime/settings.hpp"

namespace shim {

// Prepares a container that is about to be created. Errors: the container must not start.
// create, run: books HCAs for a container that requests them, and edits its config.json. If the container requests
// none, config.json stays unchanged; if rdma-runtime edited the file at an earlier start, the engine's text is
// restored.
// restore: the checkpoint released the grant, but the container's config.json still has the grant's devices. If
// config.json has the poststop hook of rdma-hook, HCAs are booked again, and the container's view is made. With crun,
// which runs no hooks at restore, config.json stays as it is. With other runtimes the createRuntime hook completes the
// grant.
Result<void> prepare_new(const Invocation& invocation, const Settings& settings, const base::ProcessIdentity& self,
                         const RuntimeLog& log);

// Edits the process file of `exec` in a container that got its HCAs from rdma-runtime. Failures are only warnings:
// probes and shells of a running container must still work.
void prepare_exec(const Invocation& invocation, const base::ProcessIdentity& self, const RuntimeLog& log);

}  // namespace shim
