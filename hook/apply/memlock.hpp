// Raises RLIMIT_MEMLOCK of a container, and never lowers it. Also makes the messages if the limit or CAP_IPC_LOCK
// cannot be set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct Plan;

// Returns the soft and the hard limit, each at least `wanted`. now: the container's present limits; nullopt: unknown.
Rlimit raised_memlock(std::uint64_t wanted, const std::optional<Rlimit>& now);
// Returns the memory that an RDMA program can lock: the smaller of the two limits.
inline std::uint64_t usable(const Rlimit& limit) {
  return limit.soft < limit.hard ? limit.soft : limit.hard;
}

// Returns the message that createRuntime cannot raise the limit: runc sets the limits of config.json after this hook.
// listed: the limit in the container's config.json, which is below `wanted`.
std::string memlock_stays(std::uint64_t wanted, std::uint64_t listed, Engine engine);
// If the plan sets a limit and the container's config.json lists one, sets plan.memlock to the listed limit, because
// the container always has at least this limit. If the listed limit is lower than the plan's, adds a warning that names
// the ways and runtimes that raise it.
void foresee_memlock(const ContainerSpec& spec, Engine engine, Plan& plan);

// Returns the limit of a process, which its children inherit; nullopt: it cannot be read. pid: 0: this process.
std::optional<Rlimit> memlock_of(int pid);

// Returns "unlimited" or "65536 bytes"; for nullopt "the engine's limit".
std::string limit_text(const std::optional<std::uint64_t>& bytes);

// The next two functions return the option of an engine that sets the limit, or adds the capability.
std::string_view where_to_set_memlock(Engine engine);
std::string_view where_to_add_ipc_lock(Engine engine);

}  // namespace hook
