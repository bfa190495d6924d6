#include "hook/apply/memlock.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "hook/plan/plan.hpp"

namespace hook {

namespace {

static_assert(RLIM_INFINITY == UINT64_MAX);

constexpr const char* kSecurityContext = "IPC_LOCK in capabilities.add of the container's securityContext";

// The options by which a user sets the limit, as each engine's documentation names them.
constexpr Word<Engine> kMemlockPlaces[] = {{"default_ulimits = [\"memlock=-1:-1\"] in crio.conf", Engine::kCrio},
                                           {"process.rlimits of its base_runtime_spec", Engine::kContainerd},
                                           {"--ulimit memlock=-1:-1", Engine::kDocker},
                                           {"--ulimit memlock=-1:-1", Engine::kPodman},
                                           {"process.rlimits of config.json", Engine::kRunc}};
constexpr Word<Engine> kIpcLockPlaces[] = {{kSecurityContext, Engine::kCrio},
                                           {kSecurityContext, Engine::kContainerd},
                                           {"--cap-add IPC_LOCK", Engine::kDocker},
                                           {"--cap-add IPC_LOCK", Engine::kPodman},
                                           {"CAP_IPC_LOCK in process.capabilities of config.json", Engine::kRunc}};

}  // namespace

Rlimit raised_memlock(std::uint64_t wanted, const std::optional<Rlimit>& now) {
  if (!now) return {wanted, wanted};
  return {std::max(now->soft, wanted), std::max(now->hard, wanted)};
}

std::string memlock_stays(std::uint64_t wanted, std::uint64_t listed, Engine engine) {
  return fmt::format(
      "cannot set RLIMIT_MEMLOCK to {} at createRuntime: the runtime sets {} from config.json after this "
      "hook; remove the limit from the engine's options, raise it ({}), or use rdma-runtime",
      memlock_text(wanted), memlock_text(listed), where_to_set_memlock(engine));
}

void foresee_memlock(const ContainerSpec& spec, Engine engine, Plan& plan) {
  if (!plan.memlock || !spec.memlock) return;
  const std::uint64_t listed = usable(*spec.memlock);
  if (listed < *plan.memlock)
    plan.warnings.push_back(fmt::format("RLIMIT_MEMLOCK is {} with crun, rdma-runtime or rdma-nri; otherwise: {}",
                                        memlock_text(*plan.memlock), memlock_stays(*plan.memlock, listed, engine)));
  // The plan shows the limit of the container's config.json: depending on way and runtime, it is raised, but never
  // lowered.
  plan.memlock = listed;
}

std::optional<Rlimit> memlock_of(int pid) {
  rlimit now{};
  if (::prlimit(pid, RLIMIT_MEMLOCK, nullptr, &now) != 0) return std::nullopt;
  return Rlimit{now.rlim_cur, now.rlim_max};
}

std::string limit_text(const std::optional<std::uint64_t>& bytes) {
  return bytes ? memlock_text(*bytes) : "the engine's limit";
}

std::string_view where_to_set_memlock(Engine engine) {
  return to_word(kMemlockPlaces, engine);
}

std::string_view where_to_add_ipc_lock(Engine engine) {
  return to_word(kIpcLockPlaces, engine);
}

}  // namespace hook
