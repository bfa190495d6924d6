#include "shim/runtime/exec_process.hpp"

#include <algorithm>
#include <utility>

#include "hook/apply/edit_spec.hpp"
#include "hook/base/json/json.hpp"

namespace shim {

using fabric::Result;
using hook::Json;

namespace {

constexpr const char* kIpcLock = "CAP_IPC_LOCK";

bool has(const Json& object, const char* name) {
  const Json* value = hook::member(object, name);
  return value && !value->is_null();
}

}  // namespace

ProcessGrant process_grant(const hook::Plan& plan) {
  const auto& granted = plan.capabilities;
  return {std::find(granted.begin(), granted.end(), kIpcLock) != granted.end(), plan.memlock};
}

Result<bool> edit_process(const ProcessGrant& grant, Json& process, const std::optional<hook::Rlimit>& inherited) {
  if (!process.is_object()) return fabric::make_error("the process: expected an object");
  // As the process of a config.json that asks for nothing else.
  hook::Plan plan;
  plan.hcas.emplace_back();
  if (grant.ipc_lock && has(process, "capabilities")) plan.capabilities = {kIpcLock};
  plan.memlock = grant.memlock;
  Json config{{"process", process}};
  TRY_VOID(hook::edit_spec(plan, "", config, inherited));
  if (config["process"] == process) return false;
  process = std::move(config["process"]);
  return true;
}

}  // namespace shim
