// Any text as a file of an engine or a runtime: the process of an exec, states, seccomp profiles, rdma-runtime's
// exec_grant. The first byte selects the grant.
#include "shim/runtime/exec_grant.hpp"

#include <cstdint>
#include <string>

#include "hook/ledger/runtime_state.hpp"
#include "hook_node.hpp"
#include "require.hpp"
#include "shim/runtime/hooks.hpp"
#include "shim/runtime/log.hpp"
#include "shim/runtime/seccomp.hpp"

namespace {

using base::Json;
using fuzz::require;

void edit_exec_checked(const shim::ProcessGrant& grant, const Json& process) {
  Json edited = process;
  const auto changed = shim::edit_process(grant, edited);
  if (!changed.has_value()) {
    require(edited == process, "a refused edit changes nothing");
    return fuzz::require_one_line(changed.error().message, "the refusal of a process");
  }
  require(*changed == (edited != process), "a change is reported");
  fuzz::require_kept(process, edited, "/rlimits");
  Json again = edited;
  const auto second = shim::edit_process(grant, again);
  require(second.has_value() && !*second && again == edited, "the second edit changes nothing");
}

void edit_config_checked(const Json& config) {
  Json edited = config;
  if (shim::add_hooks({"/usr/bin/rdma-hook", hook::Engine::kRunc, {}}, shim::HookStages::kBoth, edited)) {
    fuzz::require_kept(config, edited, "/rlimits");
    Json again = edited;
    require(shim::add_hooks({"/usr/bin/rdma-hook", hook::Engine::kRunc, {}}, shim::HookStages::kBoth, again) &&
                again == edited,
            "hooks are added once");
  }
  const auto refused = shim::refused_calls(config);
  require(refused.empty() == shim::seccomp_warning(refused).empty(), "refused calls are reported");
  Json profiled{{"linux", {{"seccomp", config}}}};
  if (!refused.empty() && shim::allow_calls(refused, profiled))
    require(shim::refused_calls(profiled["linux"]["seccomp"]).empty(), "allowed calls are not refused");
}

}  // namespace

void fuzz::run(std::string_view input, FuzzedDataProvider) {
  if (input.empty()) return;
  shim::ProcessGrant grant{(input[0] & 1) != 0, std::nullopt};
  if ((input[0] & 2) != 0) grant.memlock = (input[0] & 4) != 0 ? UINT64_MAX : 4096;
  const std::string_view text = input.substr(1);
  const std::string line = shim::log_line("error", text, 0, true);
  require(Json::accept(line) && line.find('\n') == line.size() - 1, "a line of the log is one JSON value");
  for (const auto kind : {hook::RuntimeState::Kind::kRunc, hook::RuntimeState::Kind::kCrun}) {
    const auto bundle = hook::bundle_of_state(kind, text);
    require(!bundle || bundle->starts_with('/'), "a bundle is absolute");
  }
  if (const auto exec_grant = shim::parse_exec_grant(text)) {
    const auto again = shim::parse_exec_grant(shim::exec_grant_text(*exec_grant));
    require(again && again->id == exec_grant->id && again->process == exec_grant->process &&
                again->edited == exec_grant->edited,
            "an exec grant reads back");
  }
  const auto json = base::parse_json(text, "the process");
  if (!json) return;
  edit_exec_checked(grant, *json);
  edit_config_checked(*json);
}
