// RLIMIT_MEMLOCK of a container, by whichever way it gets it: it is raised, never lowered. And what to say where that,
// or CAP_IPC_LOCK, cannot be given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct Plan;

// now: what the container has otherwise; nullopt: not known. Both limits are at least `wanted`.
Rlimit raised_memlock(std::uint64_t wanted, const std::optional<Rlimit>& now);
// Of what it registers no more can be locked.
inline std::uint64_t usable(const Rlimit& limit) {
  return limit.soft < limit.hard ? limit.soft : limit.hard;
}

// Why createRuntime cannot raise it: what config.json lists, runc sets after the hooks. listed: below `wanted`.
std::string memlock_stays(std::uint64_t wanted, std::uint64_t listed, Engine engine);
// plan.memlock becomes what the container has by each way where its config.json lists a limit: that one. A warning of
// the plan says by which ways it is raised.
void foresee_memlock(const ContainerSpec& spec, Engine engine, Plan& plan);

// Of a process, and so of what it starts; nullopt: it cannot be read. pid: 0: of this one.
std::optional<Rlimit> memlock_of(int pid);

// "unlimited", "65536 bytes", or that the engine decides.
std::string limit_text(const std::optional<std::uint64_t>& bytes);

// Where an engine is told the limit, and the capability.
std::string_view where_to_set_memlock(Engine engine);
std::string_view where_to_add_ipc_lock(Engine engine);

}  // namespace hook
