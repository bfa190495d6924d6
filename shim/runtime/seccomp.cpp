#include "shim/runtime/seccomp.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace shim {
namespace {

// SYS_##name makes the compiler reject a name that is not a system call.
#define NEEDED(name, who)          \
  NeededCall {                     \
    ((void)SYS_##name, #name), who \
  }
constexpr std::array kNeeded = {
    NEEDED(ioctl, "libibverbs"),
    NEEDED(mmap, "libibverbs"),
    NEEDED(mlock, "UCX and NCCL's plugins"),
    NEEDED(mlock2, "UCX"),
    NEEDED(munlock, "UCX and NCCL's plugins"),
    NEEDED(madvise, "libibverbs (MADV_DONTFORK)"),
    NEEDED(memfd_create, "NCCL and UCX (shared memory)"),
    NEEDED(process_vm_readv, "UCX (cma)"),
    NEEDED(process_vm_writev, "UCX (cma)"),
    NEEDED(get_mempolicy, "libnuma, NCCL"),
    NEEDED(set_mempolicy, "libnuma, NCCL"),
    NEEDED(mbind, "libnuma, NVSHMEM"),
    NEEDED(sched_getaffinity, "NCCL"),
    NEEDED(sched_setaffinity, "NCCL"),
    NEEDED(shmget, "UCX (sysv)"),
    NEEDED(shmat, "UCX (sysv)"),
    NEEDED(shmctl, "UCX (sysv)"),
    NEEDED(shmdt, "UCX (sysv)"),
};
#undef NEEDED

std::string_view text_of(const Json& object, const char* name) {
  const Json* value = base::member(object, name);
  const auto* text = value ? value->get_ptr<const std::string*>() : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}

// Returns nullptr if the member is missing or not an array.
const Json* list_of(const Json& object, const char* name) {
  const Json* value = base::member(object, name);
  return value && value->is_array() ? value : nullptr;
}

bool contains(const Json& list, std::string_view text) {
  // Strings are compared, because a comparison with Json would allocate a Json for `text` each time.
  return std::ranges::any_of(list, [&](const Json& entry) {
    const auto* string = entry.get_ptr<const std::string*>();
    return string && *string == text;
  });
}

bool refuses(std::string_view action) {
  // The prefix covers SCMP_ACT_KILL, SCMP_ACT_KILL_THREAD and SCMP_ACT_KILL_PROCESS.
  return action.starts_with("SCMP_ACT_KILL") || action == "SCMP_ACT_ERRNO" || action == "SCMP_ACT_TRAP";
}

bool has_conditions(const Json& rule) {
  const Json* arguments = list_of(rule, "args");
  return arguments && !arguments->empty();
}

bool is_refused(const Json& seccomp, const Json* rules, std::string_view call) {
  bool refused = refuses(text_of(seccomp, "defaultAction"));
  if (!rules) return refused;
  for (const Json& rule : *rules) {
    const Json* names = list_of(rule, "names");
    if (!names || !contains(*names, call)) continue;
    // A rule that allows the call only for some arguments counts as allowing it, because RDMA libraries are assumed to
    // use these arguments.
    if (!refuses(text_of(rule, "action"))) return false;
    if (!has_conditions(rule)) refused = true;
  }
  return refused;
}

// Removes the system calls `names` from the unconditional rules that refuse them: such a rule would contradict the
// rule that allow_calls() adds.
void take_out(const Json& names, Json::array_t& rules) {
  for (Json& rule : rules) {
    if (!list_of(rule, "names") || !refuses(text_of(rule, "action")) || has_conditions(rule)) continue;
    std::erase_if(rule["names"].get_ref<Json::array_t&>(),
                  [&](const Json& name) { return std::ranges::find(names, name) != names.end(); });
  }
  // A rule without names is removed, because the OCI specification requires at least one name.
  std::erase_if(rules, [](const Json& rule) {
    const Json* left = list_of(rule, "names");
    return left && left->empty();
  });
}

}  // namespace

std::span<const NeededCall> needed_calls() {
  return kNeeded;
}

std::vector<NeededCall> refused_calls(const Json& seccomp) {
  std::vector<NeededCall> refused;
  const Json* rules = list_of(seccomp, "syscalls");
  for (const NeededCall& call : kNeeded)
    if (is_refused(seccomp, rules, call.name)) refused.push_back(call);
  return refused;
}

std::string seccomp_warning(std::span<const NeededCall> refused) {
  if (refused.empty()) return {};
  std::vector<std::string> parts;
  for (const NeededCall& call : refused)
    parts.push_back(fmt::format("{} for {}", call.name, call.who));
  return fmt::format(
      "the container's seccomp profile refuses system calls that RDMA may need: {}; remedy: allow them in the profile",
      base::join(parts, ", "));
}

Result<void> allow_calls(std::span<const NeededCall> calls, Json& config) {
  const auto linux_part = config.is_object() ? config.find("linux") : config.end();
  if (!config.is_object() || linux_part == config.end() || !linux_part->is_object()) return {};
  const auto seccomp = linux_part->find("seccomp");
  if (calls.empty() || seccomp == linux_part->end() || seccomp->is_null()) return {};
  if (!seccomp->is_object()) return make_error("the container's config.json: `linux.seccomp` is not an object");
  Json& rules = (*seccomp)["syscalls"];
  if (!rules.is_null() && !rules.is_array())
    return make_error("the container's config.json: `linux.seccomp.syscalls` is not an array");
  if (rules.is_null()) rules = Json::array();
  Json names = Json::array();
  for (const NeededCall& call : calls)
    names.push_back(call.name);
  take_out(names, rules.get_ref<Json::array_t&>());
  rules.push_back(Json{{"names", names}, {"action", "SCMP_ACT_ALLOW"}});
  return {};
}

}  // namespace shim
