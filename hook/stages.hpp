// What rdma-hook does at each stage, from the state on stdin to the ledger: read, decide under the lock, book, apply,
// settle; undone when a step fails.
#pragma once

#include "fabric/result.hpp"
#include "hook/log.hpp"
#include "hook/options.hpp"

namespace hook {

// prestart and createRuntime. Success without a change for a container that asks nothing.
fabric::Result<void> create_runtime(const Options& options, Log& log);

// Returns what the container held; for a container of a pod only its part in the pod's grant. Success also when nothing
// was held or is known: teardown must not fail.
fabric::Result<void> poststop(const Options& options, Log& log);

// config.json on stdin, the edited one on stdout; what is not ours to change comes out as it went in.
fabric::Result<void> precreate(const Options& options, Log& log);

}  // namespace hook
