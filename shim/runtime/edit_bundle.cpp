#include "shim/runtime/edit_bundle.hpp"

#include <algorithm>
#include <utility>

#include "hook/base/json/json.hpp"

namespace shim {
namespace {

using fabric::make_error;
using fabric::Result;
using hook::Json;

constexpr unsigned kTimeoutSeconds = 60;

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// The member, made where it is missing or null. Making one moves its siblings.
Result<Json*> made(Json& parent, const char* name, Json::value_t type, const char* path) {
  Json& value = parent[name];
  if (value.is_null()) value = Json(type);
  if (value.type() != type) {
    return make_error("config.json: `{}` is {}, expected {}", path, value.type_name(), Json(type).type_name());
  }
  return &value;
}

bool has_hook(const Json& hooks, const char* stage, std::string_view name) {
  const Json* entries = hook::member(hooks, stage);
  if (!entries || !entries->is_array()) return false;
  return std::any_of(entries->begin(), entries->end(), [&](const Json& entry) {
    const Json* path = hook::member(entry, "path");
    const auto* text = path ? path->get_ptr<const std::string*>() : nullptr;
    return text && base_name(*text) == name;
  });
}

Result<void> add_hook(const HookCommand& command, const char* stage, Json& hooks) {
  Json& entries = *TRY(made(hooks, stage, Json::value_t::array, stage));
  Json arguments = {base_name(command.path), stage, "--engine", hook::to_string(command.engine)};
  for (const std::string& option : command.options)
    arguments.push_back(option);
  entries.push_back(Json{{"path", command.path},
                         {"args", std::move(arguments)},
                         {"env", {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
                         {"timeout", kTimeoutSeconds}});
  return {};
}

Result<void> add_missing_hooks(const HookCommand& command, Json& config) {
  if (!config.is_object()) return make_error("config.json: expected an object");
  Json& hooks = *TRY(made(config, "hooks", Json::value_t::object, "hooks"));
  const std::string_view name = base_name(command.path);
  if (!has_hook(hooks, "createRuntime", name) && !has_hook(hooks, "prestart", name)) {
    TRY_VOID(add_hook(command, "createRuntime", hooks));
  }
  return has_hook(hooks, "poststop", name) ? Result<void>() : add_hook(command, "poststop", hooks);
}

}  // namespace

Result<void> add_hooks(const HookCommand& command, Json& config) {
  Json edited = config;
  TRY_VOID(add_missing_hooks(command, edited));
  config = std::move(edited);
  return {};
}

}  // namespace shim
