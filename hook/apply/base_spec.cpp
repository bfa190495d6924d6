#include "hook/apply/base_spec.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hook/base/json/json.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kTimeout = 60;  // seconds

fabric::Error no_spec(const std::string& what) {
  return {"the specification: " + what, 0, kBaseSpecRemedy};
}

// The member, made where it is not there.
Result<Json*> made_member(Json& object, const char* name, const Json& empty) {
  Json& value = object[name];
  if (value.is_null()) value = empty;
  if (value.type() == empty.type()) return &value;
  return no_spec(fmt::format("`{}` is no {}", name, empty.is_array() ? "list" : "object"));
}

Result<void> add_hook(const std::string& path, const char* stage, const char* command, Json& spec) {
  Json& hooks = *TRY(made_member(spec, "hooks", Json::object()));
  Json& list = *TRY(made_member(hooks, stage, Json::array()));
  Json hook = {{"path", path},
               {"args", {"rdma-hook", command, "--engine", "containerd"}},
               {"env", {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
               {"timeout", kTimeout}};
  if (std::find(list.begin(), list.end(), hook) == list.end()) list.push_back(std::move(hook));
  return {};
}

}  // namespace

Result<void> edit_base_spec(const std::string& hook, bool verify, Json& spec) {
  if (!spec.is_object()) return no_spec("it is no JSON object");
  Json edited = spec;
  const auto process = edited.find("process");
  if (process == edited.end() || !process->is_object()) return no_spec("it has no object `process`");
  process->erase("rlimits");
  if (verify) {
    TRY_VOID(add_hook(hook, "createRuntime", "verify", edited));
  } else {
    (*process)["rlimits"] = {{{"type", "RLIMIT_MEMLOCK"}, {"soft", UINT64_MAX}, {"hard", UINT64_MAX}}};
    TRY_VOID(add_hook(hook, "createRuntime", "createRuntime", edited));
    TRY_VOID(add_hook(hook, "poststop", "poststop", edited));
  }
  spec = std::move(edited);
  return {};
}

}  // namespace hook
