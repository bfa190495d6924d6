#include "shim/runtime/hooks.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace shim {
namespace {

constexpr unsigned kTimeoutSeconds = 60;

// Returns the member, and creates it if it is missing or null. A created member invalidates pointers to other members
// of parent. path: the member's name in errors.
Result<Json*> made(Json& parent, const char* name, Json::value_t type, const char* path) {
  Json& value = base::add_member(parent, name);
  if (value.is_null()) value = Json(type);
  if (value.type() != type)
    return make_error("the container's config.json: `{}` is {}, expected {}", path, value.type_name(),
                      Json(type).type_name());
  return &value;
}

const std::string* text_of(const Json* value) {
  return value ? value->get_ptr<const std::string*>() : nullptr;
}

bool is_same_program(const std::string& left, const std::string& right) {
  std::error_code failed;
  return left == right || std::filesystem::equivalent(left, right, failed);
}

// Returns true if the entry runs the program of `command` for `stage`. The first argument of rdma-hook names the stage.
// An entry with the argument `verify` does not count, because it adds no devices.
bool does_stage(const HookCommand& command, std::string_view stage, const Json& entry) {
  const auto* path = text_of(base::member(entry, "path"));
  const Json* arguments = base::member(entry, "args");
  if (!path || !arguments || !arguments->is_array() || arguments->size() < 2) return false;
  const auto* does = text_of(&(*arguments)[1]);
  const bool is_stage = does && (*does == stage || (*does == "prestart" && stage == "createRuntime"));
  return is_stage && is_same_program(*path, command.path);
}

bool has_hook(const HookCommand& command, const Json& hooks, const char* list, std::string_view stage) {
  const Json* entries = base::member(hooks, list);
  return entries && entries->is_array() && std::any_of(entries->begin(), entries->end(), [&](const Json& entry) {
           return does_stage(command, stage, entry);
         });
}

Result<void> add_hook(const HookCommand& command, const char* stage, Json& hooks) {
  Json& entries = *TRY(made(hooks, stage, Json::value_t::array, stage));
  Json arguments = {base::last_component(command.path), stage, "--engine", hook::to_string(command.engine)};
  for (const std::string& option : command.options)
    arguments.push_back(option);
  entries.push_back(Json{{"path", command.path},
                         {"args", std::move(arguments)},
                         // The PATH is fixed: the hook must not depend on the environment of the runtime.
                         {"env", {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
                         {"timeout", kTimeoutSeconds}});
  return {};
}

}  // namespace

bool has_create_hook(const HookCommand& command, const Json& config) {
  const Json* hooks = base::member(config, "hooks");
  return hooks && (has_hook(command, *hooks, "createRuntime", "createRuntime") ||
                   has_hook(command, *hooks, "prestart", "createRuntime"));
}

bool has_poststop_hook(const HookCommand& command, const Json& config) {
  const Json* hooks = base::member(config, "hooks");
  return hooks && has_hook(command, *hooks, "poststop", "poststop");
}

Result<void> add_hooks(const HookCommand& command, HookStages stages, Json& config) {
  if (!config.is_object()) return make_error("the container's config.json: expected an object");
  Json& hooks = *TRY(made(config, "hooks", Json::value_t::object, "hooks"));
  if (stages == HookStages::kBoth && !has_create_hook(command, config)) {
    TRY_VOID(add_hook(command, "createRuntime", hooks));
  }
  return has_poststop_hook(command, config) ? Result<void>() : add_hook(command, "poststop", hooks);
}

HookNeed hook_need(const hook::ContainerRequest& requesting, const HookCommand& command, Dialect dialect) {
  if (has_create_hook(command, *requesting.document)) return HookNeed::kThereAlready;
  // The order determines only which reason is reported: each reason requires the hook.
  if (hook::may_get_rails(requesting)) return HookNeed::kRails;
  if (dialect == Dialect::kCrun && hook::limits_rdma(requesting.admin)) return HookNeed::kRdmaLimits;
  if (hook::needs_own_view(requesting)) return HookNeed::kOwnView;
  return requesting.spec.has_own_pidns ? HookNeed::kNone : HookNeed::kSharedPids;
}

}  // namespace shim
