// What rdma-hook does at each stage, from the state on stdin to the ledger: read, decide under the lock, book, apply,
// settle; undone when a step fails.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/failure.hpp"
#include "hook/base/log.hpp"
#include "hook/base/timing.hpp"
#include "hook/metrics/counters.hpp"
#include "hook/program/options.hpp"
#include "hook/rails/address/ipam.hpp"

namespace hook {

// One call of a stage.
struct Call {
  const Options& options;
  Log& log;
  IpamHelper* ipam = nullptr;  // nullptr: no network of the configuration has a CNI plugin
  Timing timing = {};
  FailureReason phase = FailureReason::kState;  // what an error would be about now
  std::string container = {};                   // its id, once it is known
  std::vector<Increment> counts = {};           // what happened, to be counted at the end
};

// prestart and createRuntime. Success without a change for a container that asks nothing.
fabric::Result<void> create_runtime(Call& call);

// A hook beside rdma-nri, which a runtime goes on without when it does not answer: success for a container that asks
// nothing or has its grant, an error for one that asked and has none. Gives nothing.
fabric::Result<void> verify(Call& call);

// Returns what the container held; for a container of a pod only its part in the pod's grant. Success also when nothing
// was held or is known: teardown must not fail.
fabric::Result<void> poststop(Call& call);

}  // namespace hook
