// The process of `exec --process FILE`. Engines make it from their own copy of the specification (`kubectl exec`,
// `docker exec`), which has nothing of what rdma-runtime wrote into config.json. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace shim {

// What every process may do of a container that got RDMA.
struct ProcessGrant {
  bool ipc_lock = false;                 // CAP_IPC_LOCK
  std::optional<std::uint64_t> memlock;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: left alone
  friend bool operator==(const ProcessGrant&, const ProcessGrant&) = default;
};

ProcessGrant process_grant(const hook::Plan& plan);

// True: process was changed. A process without `capabilities` keeps having none: the runtimes then take the
// container's, which have it (tried: runc 1.1.5, crun 1.8.1; a limit that is not listed they take from the engine).
// Unknown members and 64-bit integers are kept, and an edited process stays as it is. Errors: no object, a member of a
// wrong type; nothing is changed then.
// inherited: as edit_spec()'s.
fabric::Result<bool> edit_process(const ProcessGrant& grant, hook::Json& process,
                                  const std::optional<hook::Rlimit>& inherited = std::nullopt);

}  // namespace shim
