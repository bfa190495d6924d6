#include "shim/runtime/seccomp.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

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

constexpr std::size_t kLongestName = 32;

// A bit for each call of kNeeded, by the length of its name: few of the hundreds of names in a profile are compared.
constexpr auto kByLength = [] {
  std::array<std::uint32_t, kLongestName> sets{};
  for (std::size_t i = 0; i < kNeeded.size(); ++i)
    sets[kNeeded[i].name.size()] |= std::uint32_t{1} << i;
  return sets;
}();

// Returns a bit for each needed call that the list names.
std::uint32_t needed_in(const base::JsonNode& names) {
  std::uint32_t found = 0;
  for (const base::JsonNode& name : names) {
    if (!name.is_string() || name.text.size() >= kLongestName) continue;
    for (std::uint32_t left = kByLength[name.text.size()]; left != 0; left &= left - 1) {
      const auto at = static_cast<std::size_t>(std::countr_zero(left));
      if (kNeeded[at].name == name.text) found |= std::uint32_t{1} << at;
    }
  }
  return found;
}

std::string_view text_of(const base::JsonNode& object, std::string_view name) {
  const base::JsonNode* value = object.find(name);
  return value && value->is_string() ? value->text : std::string_view();
}

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

bool refuses(std::string_view action) {
  // The prefix covers SCMP_ACT_KILL, SCMP_ACT_KILL_THREAD and SCMP_ACT_KILL_PROCESS.
  return action.starts_with("SCMP_ACT_KILL") || action == "SCMP_ACT_ERRNO" || action == "SCMP_ACT_TRAP";
}

bool has_conditions(const Json& rule) {
  const Json* arguments = list_of(rule, "args");
  return arguments && !arguments->empty();
}

// Returns a bit for each needed call that the profile refuses.
std::uint32_t refused_set(const base::JsonNode& seccomp) {
  constexpr std::uint32_t kAll = (std::uint32_t{1} << kNeeded.size()) - 1;
  std::uint32_t refused = refuses(text_of(seccomp, "defaultAction")) ? kAll : 0;
  std::uint32_t allowed = 0;
  const base::JsonNode* rules = seccomp.find("syscalls");
  if (!rules || !rules->is_array()) return refused;
  for (const base::JsonNode& rule : *rules) {
    const base::JsonNode* names = rule.find("names");
    if (!names || !names->is_array()) continue;
    const base::JsonNode* arguments = rule.find("args");
    const bool has_arguments = arguments && arguments->is_array() && arguments->span > 1;
    // A rule that allows the call only for some arguments counts as allowing it, because RDMA libraries are assumed to
    // use these arguments.
    if (!refuses(text_of(rule, "action")))
      allowed |= needed_in(*names);
    else if (!has_arguments)
      refused |= needed_in(*names);
  }
  return refused & ~allowed;
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

std::vector<NeededCall> refused_calls(const base::JsonNode& seccomp) {
  std::vector<NeededCall> refused;
  for (std::uint32_t left = refused_set(seccomp); left != 0; left &= left - 1)
    refused.push_back(kNeeded[static_cast<std::size_t>(std::countr_zero(left))]);
  return refused;
}

std::vector<NeededCall> refused_calls(const Json& seccomp) {
  return refused_calls(base::tree_of(seccomp).tree.root());
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
