#include "hook/apply/edit_spec.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json/json.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/config/config.hpp"

namespace hook {
namespace {

constexpr std::string_view kMemlock = "RLIMIT_MEMLOCK";
constexpr const char* kHcaHandles = "hcaHandles";
constexpr const char* kHcaObjects = "hcaObjects";

// Returns the member; adds an empty value of `type` if it is missing or null. The pointer is valid until a member is
// added to `parent`: an ordered JSON object is a vector, so an addition can move the other members. Errors: another
// type.
Result<Json*> member(Json& parent, const char* name, Json::value_t type, std::string_view path) {
  Json& value = add_member(parent, name);
  if (value.is_null()) value = Json(type);
  if (value.type() != type)
    return make_error("config.json: `{}{}{}` is {}, expected {}", path, path.empty() ? "" : ".", name,
                      value.type_name(), Json(type).type_name());
  return &value;
}

// Returns a member, or `fallback` if it is missing or has another type. A wrong type is no error here, because the
// runtime reports it.
std::int64_t number_or(const Json& object, const char* name, std::int64_t fallback) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
}

std::string text_or(const Json& object, const char* name, std::string fallback) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::move(fallback);
}

// Adds a device node, unless the container has it.
Result<void> add_device(const AdjustedNode& adjusted, Json& devices) {
  const PlannedNode& node = adjusted.node;
  if (adjusted.is_present()) return {};
  if (const auto& other = adjusted.present)
    return Error{fmt::format("config.json: linux.devices has `{}` as {} {}:{}, but on this node it is c {}:{}",
                             node.path, other->type, other->major, other->minor, *node.major, *node.minor),
                 0, "remove that entry, or restart the device plugin so that it reads the numbers again"};
  // Members are added one by one, because a list of values would be copied.
  Json& device = devices.emplace_back();
  add_member(device, "path") = node.path;
  add_member(device, "type") = "c";
  add_member(device, "major") = *node.major;
  add_member(device, "minor") = *node.minor;
  add_member(device, "fileMode") = node.mode;
  add_member(device, "uid") = node.uid;
  add_member(device, "gid") = node.gid;
  return {};
}

// Returns whether the rules allow reading and writing. Rules apply in order, and the last match decides (runtime-spec
// 1.3.0, "Allowed Device list").
bool rules_allow(const Json& rules, const PlannedNode& node) {
  bool allowed = false;
  for (const Json& rule : rules) {
    if (!rule.is_object()) continue;
    // In a device rule a missing type means all types, and a missing number means all numbers.
    const std::string type = text_or(rule, "type", "a");
    if (type != "c" && type != "a") continue;
    const auto matches = [&](const char* name, std::uint32_t number) {
      const std::int64_t wanted = number_or(rule, name, -1);
      return wanted < 0 || wanted == number;
    };
    if (!matches("major", *node.major) || !matches("minor", *node.minor)) continue;
    const std::string access = text_or(rule, "access", type == "a" ? "rwm" : "");
    const bool reads = access.find('r') != std::string::npos;
    const bool writes = access.find('w') != std::string::npos;
    const auto found = rule.find("allow");
    const bool allow = found != rule.end() && found->is_boolean() && found->get<bool>();
    if (allow && reads && writes) allowed = true;
    if (!allow && (reads || writes)) allowed = false;
  }
  return allowed;
}

// Adds device nodes and the device rules that they need.
Result<void> add_nodes(const std::vector<AdjustedNode>& nodes, Json& config) {
  if (nodes.empty()) return {};
  Json& linux_part = *TRY(member(config, "linux", Json::value_t::object, ""));
  (void)TRY(member(linux_part, "devices", Json::value_t::array, "linux"));
  Json& resources = *TRY(member(linux_part, "resources", Json::value_t::object, "linux"));
  Json& rules = *TRY(member(resources, "devices", Json::value_t::array, "linux.resources"));
  Json& devices = linux_part["devices"];
  for (const AdjustedNode& adjusted : nodes) {
    const PlannedNode& node = adjusted.node;
    if (!node.major || !node.minor) return make_error("the device number of `{}` is unknown", node.path);
    TRY_VOID(add_device(adjusted, devices));
    if (rules_allow(rules, node)) continue;
    // The access has no `m` (mknod). A runtime that makes the node inside the cgroup has its own rule for that (runc,
    // crun: `c *:* m`).
    Json& rule = rules.emplace_back();
    add_member(rule, "allow") = true;
    add_member(rule, "type") = "c";
    add_member(rule, "major") = *node.major;
    add_member(rule, "minor") = *node.minor;
    add_member(rule, "access") = "rw";
  }
  return {};
}

// Lowers the limits of one device. A lower limit that the container's config.json lists stays: the engine or the user
// may be stricter than the administrator.
void limit_device(const PlannedRdmaLimit& limit, Json& device) {
  const auto listed = [&](const char* name) -> std::optional<std::uint32_t> {
    const std::int64_t value = number_or(device, name, -1);
    return value < 0 || value > UINT32_MAX ? std::nullopt : std::optional(static_cast<std::uint32_t>(value));
  };
  const RdmaLimits lower = lower_of(limit.limits, {listed(kHcaHandles), listed(kHcaObjects)});
  if (lower.handles) device[kHcaHandles] = *lower.handles;
  if (lower.objects) device[kHcaObjects] = *lower.objects;
}

Result<void> add_rdma_limits(const std::vector<PlannedRdmaLimit>& limits, Json& config) {
  if (limits.empty()) return {};
  Json& linux_part = *TRY(member(config, "linux", Json::value_t::object, ""));
  Json& resources = *TRY(member(linux_part, "resources", Json::value_t::object, "linux"));
  Json& rdma = *TRY(member(resources, "rdma", Json::value_t::object, "linux.resources"));
  for (const PlannedRdmaLimit& limit : limits)
    limit_device(limit, *TRY(member(rdma, limit.hca.c_str(), Json::value_t::object, "linux.resources.rdma")));
  return {};
}

// Adds capabilities. If the container's user is not root, only ambient capabilities survive execve(2). A
// capability can be ambient only if it is also inheritable (capabilities(7)).
Result<void> add_capabilities(const std::vector<std::string>& names, Json& process) {
  if (names.empty()) return {};
  std::vector<const char*> sets = {"bounding", "effective", "permitted"};
  const auto user = process.find("user");
  if (user != process.end() && user->is_object() && number_or(*user, "uid", 0) != 0)
    sets.insert(sets.end(), {"inheritable", "ambient"});
  Json& capabilities = *TRY(member(process, "capabilities", Json::value_t::object, "process"));
  for (const char* set : sets) {
    Json& list = *TRY(member(capabilities, set, Json::value_t::array, "process.capabilities"));
    for (const std::string& name : names)
      if (std::ranges::find(list, Json(name)) == list.end()) list.push_back(name);
  }
  return {};
}

// Raises RLIMIT_MEMLOCK in its present entries of `rlimits`; the specification allows one, and runtimes use the last. A
// higher limit stays.
Result<void> raise_memlock(std::uint64_t wanted, const std::optional<Rlimit>& inherited, Json& process) {
  Json& rlimits = *TRY(member(process, "rlimits", Json::value_t::array, "process"));
  bool is_present = false;
  for (Json& limit : rlimits) {
    if (!limit.is_object() || text_or(limit, "type", "") != kMemlock) continue;
    is_present = true;
    for (const char* name : {"soft", "hard"}) {
      const auto found = limit.find(name);
      // The JSON parser stores a non-negative number as unsigned, but other code of this program may have stored one as
      // signed. Both types count.
      const bool is_limit = found != limit.end() && found->is_number_integer() &&
                            (found->is_number_unsigned() || found->get<std::int64_t>() >= 0);
      const bool higher = is_limit && found->get<std::uint64_t>() >= wanted;
      if (!higher) limit[name] = wanted;
    }
  }
  if (is_present) return {};
  const Rlimit raised = raised_memlock(wanted, inherited);
  rlimits.push_back(Json{{"type", kMemlock}, {"hard", raised.hard}, {"soft", raised.soft}});
  return {};
}

Result<void> add_environment(const std::map<std::string, std::string>& variables, Json& process) {
  if (variables.empty()) return {};
  Json& env = *TRY(member(process, "env", Json::value_t::array, "process"));
  for (const auto& [name, value] : variables) {
    const std::string prefix = name + "=";
    const auto own =
        std::find_if(env.rbegin(), env.rend(), [&](const Json& entry) {  // the last entry of a variable counts
          return entry.is_string() && entry.get_ref<const std::string&>().starts_with(prefix);
        });
    (own == env.rend() ? env.emplace_back() : *own) = prefix + value;
  }
  return {};
}

Result<void> add_mounts(const std::vector<PlannedMount>& added, Json& config) {
  if (added.empty()) return {};
  Json& mounts = *TRY(member(config, "mounts", Json::value_t::array, ""));
  for (const PlannedMount& mount : added) {
    mounts.push_back(Json{{"destination", mount.destination},
                          {"type", mount.type},
                          {"source", mount.source},
                          {"options", mount.options}});
  }
  return {};
}

}  // namespace

Result<void> edit_spec(const Adjustment& adjustment, Json& config, const std::optional<Rlimit>& inherited) {
  if (adjustment == Adjustment()) return {};
  if (!config.is_object()) return make_error("`config.json`: expected an object");
  TRY_VOID(add_nodes(adjustment.nodes, config));
  TRY_VOID(add_rdma_limits(adjustment.rdma_limits, config));
  Json& process = *TRY(member(config, "process", Json::value_t::object, ""));
  TRY_VOID(add_capabilities(adjustment.capabilities, process));
  if (adjustment.memlock) TRY_VOID(raise_memlock(*adjustment.memlock, inherited, process));
  TRY_VOID(add_environment(adjustment.env, process));
  TRY_VOID(add_mounts(adjustment.mounts, config));
  if (adjustment.token.empty()) return {};
  add_member(*TRY(member(config, "annotations", Json::value_t::object, "")), kGrantAnnotation) = adjustment.token;
  return {};
}

}  // namespace hook
