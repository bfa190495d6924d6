#include "hook/apply/base_spec.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/json/json.hpp"

namespace hook {
namespace {

constexpr int kTimeout = 60;  // seconds

Error no_spec(const std::string& what) {
  return {"cannot edit the specification: " + what, 0, kBaseSpecRemedy};
}

// Checks that each entry of a list is an object.
Result<void> check_objects(const std::string& name, const Json& list) {
  for (std::size_t i = 0; list.is_array() && i < list.size(); ++i)
    if (!list[i].is_object()) return no_spec(fmt::format("`{}[{}]` is not an object", name, i));
  return {};
}

// Returns the member; adds `empty` if it is missing or null. Errors: another type.
Result<Json*> made_member(Json& object, const char* name, const Json& empty) {
  Json& value = object[name];
  if (value.is_null()) value = empty;
  if (value.type() == empty.type()) return &value;
  return no_spec(fmt::format("`{}` is not {}", name, empty.is_array() ? "a list" : "an object"));
}

// Returns whether rdma-hook added this hook: verify or grant, at any path.
bool is_ours(const Json& hook) {
  const Json args = hook.value("args", Json());
  return args.is_array() && !args.empty() && args.front() == "rdma-hook";
}

Result<void> remove_ours(Json& spec) {
  const auto hooks = spec.find("hooks");
  if (hooks == spec.end() || !hooks->is_object()) return {};
  for (const auto& [stage, list] : hooks->items()) {
    TRY_VOID(check_objects(fmt::format("hooks.{}", stage), list));
    if (list.is_array()) list.erase(std::remove_if(list.begin(), list.end(), is_ours), list.end());
  }
  return {};
}

Result<void> add_hook(const std::string& path, const char* stage, const char* command, Json& spec) {
  Json& hooks = *TRY(made_member(spec, "hooks", Json::object()));
  Json& list = *TRY(made_member(hooks, stage, Json::array()));
  const Json args = {"rdma-hook", command, "--engine", "containerd"};
  list.push_back(
      {{"path", path}, {"args", args}, {"env", {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}, {"timeout", kTimeout}});
  return {};
}

bool is(const Json& limit, const char* type) {
  return limit.value("type", Json()) == type;
}

// Returns whether this is the limit that `ctr oci spec` prints (containerd 2.1.9). containerd removes this limit from
// its built-in specification, but not from a base specification, so here it would apply to every container.
bool is_default_nofile(const Json& limit) {
  return is(limit, "RLIMIT_NOFILE") && limit.value("soft", Json()) == 1024 && limit.value("hard", Json()) == 1024;
}

// Removes the default RLIMIT_NOFILE. Sets RLIMIT_MEMLOCK to unlimited, except with `verify`: rdma-nri then sets this
// limit.
Result<void> edit_limits(bool verify, Json& process) {
  Json& limits = *TRY(made_member(process, "rlimits", Json::array()));
  TRY_VOID(check_objects("process.rlimits", limits));
  const auto goes = [&](const Json& limit) {
    return is_default_nofile(limit) || (!verify && is(limit, "RLIMIT_MEMLOCK"));
  };
  limits.erase(std::remove_if(limits.begin(), limits.end(), goes), limits.end());
  if (!verify) limits.push_back({{"type", "RLIMIT_MEMLOCK"}, {"soft", UINT64_MAX}, {"hard", UINT64_MAX}});
  if (limits.empty()) process.erase("rlimits");
  return {};
}

}  // namespace

Result<void> edit_base_spec(const std::string& hook, bool verify, Json& spec) {
  if (!spec.is_object()) return no_spec("it is not a JSON object");
  // The edit works on a copy, so that an error leaves `spec` unchanged.
  Json edited = spec;
  const auto process = edited.find("process");
  if (process == edited.end() || !process->is_object()) return no_spec("object `process` is missing");
  TRY_VOID(edit_limits(verify, *process));
  // Removes the hooks that an earlier call of edit_base_spec() added, because they would run too.
  TRY_VOID(remove_ours(edited));
  if (verify) {
    TRY_VOID(add_hook(hook, "createRuntime", "verify", edited));
  } else {
    TRY_VOID(add_hook(hook, "createRuntime", "createRuntime", edited));
    TRY_VOID(add_hook(hook, "poststop", "poststop", edited));
  }
  spec = std::move(edited);
  return {};
}

}  // namespace hook
