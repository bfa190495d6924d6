// Any text as the output of a program of the node (an engine's configuration, a unit, ibv_devinfo, dcb), and as an
// engine's file, which `install` edits.
#include <algorithm>
#include <string>

#include "hook/admin/doctor/checks.hpp"
#include "hook/admin/install/plan.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

// Returns the settings in the format of the parsed output.
std::string print(const hook::EngineSettings& settings) {
  std::string text;
  for (const auto& [setting, value] : settings)
    text += "[" + setting.table + "]\n  " + setting.key + " = " + value + "\n";
  return text;
}

void check_settings(const hook::EngineSettings& settings) {
  require(!hook::lost_setting(settings, settings, {}) && !hook::missing_setting(settings, settings), "nothing is lost");
  require(hook::parse_engine_settings(print(settings)) == settings, "settings read back", print(settings));
}

void check_plan(FuzzedDataProvider& data, hook::EngineSettings settings) {
  hook::EngineFacts facts;
  facts.engine.engine = data.PickValueInArray(
      {hook::Engine::kContainerd, hook::Engine::kCrio, hook::Engine::kDocker, hook::Engine::kPodman});
  facts.engine.program = "/usr/bin/engine";
  facts.engine.major = data.ConsumeIntegralInRange(1, 2);
  facts.way = data.PickValueInArray(
      {hook::InstallWay::kNri, hook::InstallWay::kRuntime, hook::InstallWay::kHook, hook::InstallWay::kCdi});
  facts.programs = "/opt/rdma-init/bin";
  const bool changes_form = data.ConsumeBool();
  if (data.ConsumeBool()) facts.base_spec = "{}\n";
  facts.settings = std::move(settings);
  const std::string file = data.ConsumeRemainingBytesAsString();
  hook::guess_form(facts, file);
  if (changes_form) hook::change_form(facts);
  const auto read = [&](const std::string& path) -> base::Result<std::optional<std::string>> {
    if (path == hook::kContainerdConfig || path.ends_with(".conf") || path.ends_with("daemon.json")) return {file};
    return std::optional<std::string>();
  };
  for (const std::string& path : hook::plan_files(facts))
    facts.files.insert_or_assign(path, read(path));
  const auto plan = hook::plan_install(facts);
  if (!plan) return fuzz::require_one_line(plan.error().message, "the refusal of a plan");
  for (const std::string& line : plan->messages)
    fuzz::require_one_line(line, "a line of a plan");
  for (const hook::FileEdit& edit : plan->edits) {
    // The directory of containerd's drop-ins is from its own configuration, which only root can write.
    require(edit.path.starts_with('/'), "a file of the node", edit.path);
    require(edit.path.find('\n') == std::string::npos && edit.path.find("/../") == std::string::npos, "a plain path",
            edit.path);
    require(!edit.after.empty() && edit.before != edit.after, "an edit changes something", edit.path);
  }
}

void check_doctor(const std::string& text) {
  for (const std::string& program : hook::our_programs_in(text))
    require(program.starts_with('/') && program.find_first_of(" \t\n\"'") == std::string::npos, "a path of a program",
            program);
  const hook::Unit unit = hook::parse_unit(text, "/unit");
  (void)hook::unit_memlock(unit);
  (void)hook::exec_start(unit, {});
  for (const auto& [port, mtu] : hook::parse_ibv_devinfo(text))
    require(!port.first.empty() && mtu > 0, "a port has a name and an MTU", port.first);
  if (const auto priorities = hook::parse_dcb_pfc(text))
    require(priorities->size() <= text.size(), "priorities are those of the text");
  (void)hook::parse_dcb_priorities(text);
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const bool comments = data.ConsumeBool();
  const std::string printed = data.ConsumeRandomLengthString(4000);
  const hook::EngineSettings settings = hook::parse_engine_settings(printed, comments);
  check_settings(settings);
  check_doctor(printed);
  check_plan(data, settings);
}
