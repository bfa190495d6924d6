// The files that CRI-O and containerd open when they start, and that the configuration which they print only names.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {
namespace {

constexpr const char* kCrioRuntime = "crio.runtime";
constexpr std::string_view kCrioHandlers = "crio.runtime.runtimes.";

Error not_started(const EngineFacts& facts, const SettingName& setting, std::string_view what, const char* remedy) {
  const std::string otherwise = fmt::format("[{}]", setting.table);
  return {fmt::format("{}: {} would not start: {}", where_set(facts, setting.table, setting.key, otherwise),
                      to_string(facts.engine.engine), what),
          ENOENT, fmt::format("{}; nothing was changed", remedy)};
}

// Returns whether the engine finds a program by its name. Without PATH= in the unit the usual directories count.
bool is_in_path(const std::string& root, const EngineFacts& facts, const std::string& name) {
  const auto path = facts.start.variables.find("PATH");
  if (path == facts.start.variables.end()) return find_program(root, name).has_value();
  for (const std::string_view directory : base::split(path->second.value, ':'))
    if (node_has(root, fmt::format("{}/{}", directory, name), X_OK)) return true;
  return false;
}

// Source: pkg/config, ValidateRuntimes(): CRI-O ignores a handler without its program, except the default handler.
bool has_runtime(const std::string& root, const EngineFacts& facts, const std::string& table) {
  const std::string path = setting_text(facts.settings, table, "runtime_path");
  return path.empty() ? is_in_path(root, facts, table.substr(kCrioHandlers.size())) : node_has(root, path, F_OK);
}

// Source: pkg/config, TranslateMonitorFields() and ValidateConmonPath(): `conmon` replaces the monitor of each handler
// of type oci. An empty path means conmon in PATH.
Result<void> check_monitor(const std::string& root, const EngineFacts& facts, const std::string& table) {
  const std::string conmon = setting_text(facts.settings, kCrioRuntime, "conmon");
  const std::string path = conmon.empty() ? setting_text(facts.settings, table, "monitor_path") : conmon;
  if (path.empty() ? is_in_path(root, facts, "conmon") : node_has(root, path, F_OK)) return {};
  if (!conmon.empty())
    return not_started(facts, {kCrioRuntime, "conmon"},
                       fmt::format("`conmon` names `{}`, which does not exist", conmon), "correct `conmon`");
  if (!path.empty())
    return not_started(facts, {table, "monitor_path"}, fmt::format("`{}` does not exist", path),
                       "correct `monitor_path`");
  return not_started(facts, {table, "runtime_path"},
                     fmt::format("[{}] has no `monitor_path`, and conmon is not in PATH", table),
                     "add `monitor_path = \"PATH OF CONMON\"` to this table");
}

Result<void> check_crio_files(const std::string& root, const EngineFacts& facts) {
  const std::string usual = std::string(kCrioHandlers) + setting_text(facts.settings, kCrioRuntime, "default_runtime");
  std::set<std::string> handlers;
  for (const auto& [setting, value] : facts.settings)
    if (setting.table.starts_with(kCrioHandlers)) handlers.insert(setting.table);
  for (const std::string& table : handlers) {
    const auto inherits = facts.settings.find({table, "inherit_default_runtime"});
    const std::string& of = inherits != facts.settings.end() && inherits->second == "true" ? usual : table;
    if (!has_runtime(root, facts, of)) {
      if (table != usual) continue;
      return not_started(facts, {table, "runtime_path"},
                         fmt::format("the runtime of the default handler [{}] does not exist", table),
                         "correct its `runtime_path`");
    }
    const std::string type = setting_text(facts.settings, of, "runtime_type");
    if (type.empty() || type == "oci") TRY_VOID(check_monitor(root, facts, table));
  }
  for (const char* key : {"blockio_config_file", "rdt_config_file"}) {
    // Without a mounted resctrl CRI-O does not open that file (internal/config/rdt, Load()).
    if (key == std::string_view("rdt_config_file") && !node_has(root, "/sys/fs/resctrl/info", F_OK)) continue;
    const std::string path = setting_text(facts.settings, kCrioRuntime, key);
    if (!path.empty() && !node_has(root, path, F_OK))
      return not_started(facts, {kCrioRuntime, key}, fmt::format("`{}` does not exist", path), "correct this path");
  }
  return {};
}

bool has_table(const EngineSettings& settings, std::string name) {
  name = bare_name(name);
  return std::ranges::any_of(settings, [&](const auto& one) { return bare_name(one.first.table) == name; });
}

// Source: internal/cri/config, ValidateRuntimeConfig(), and plugins/cri/runtime, loadBaseOCISpecs(). Tables of a plugin
// that this containerd does not have are ignored.
Result<void> check_containerd_files(const std::string& root, const EngineFacts& facts) {
  for (const auto& [setting, value] : facts.settings) {
    if (!setting.table.starts_with(handlers_of(facts))) continue;
    const std::string text = setting_text(facts.settings, setting.table, setting.key);
    if (text.empty()) continue;
    // A file of version 2 has another name of the plugin than containerd 2 prints.
    const std::string in_files =
        setting.table.substr(std::min(setting.table.find("'.containerd"), setting.table.size()));
    if (setting.key == "default_runtime_name") {
      // Skips the handlers of install, whose tables are missing during an upgrade.
      if (text == (facts.way == InstallWay::kHook ? "rdma-hook" : "rdma")) continue;
      if (!has_table(facts.settings, fmt::format("{}.runtimes.{}", setting.table, text)))
        return not_started(facts, {in_files, setting.key}, fmt::format("the default handler `{}` has no table", text),
                           "add its table");
    } else if (setting.key == "base_runtime_spec" && !text.starts_with("/etc/containerd/rdma-")) {
      // A file that install cannot read, such as a link, may be right. Its own files are missing during an upgrade.
      const auto spec = read_node_file(root, text);
      // containerd accepts a key that occurs twice.
      if (spec && (!*spec || !Json::accept(**spec)))
        return not_started(facts, {in_files, setting.key},
                           fmt::format("`{}` {}", text, *spec ? "is not JSON" : "does not exist"),
                           "correct this file, or remove the line");
    }
  }
  return {};
}

}  // namespace

Result<void> check_named_files(const std::string& root, const EngineFacts& facts) {
  if (facts.slurm || facts.way == InstallWay::kCdi) return {};
  if (facts.engine.engine == Engine::kCrio) return check_crio_files(root, facts);
  if (facts.engine.engine == Engine::kContainerd) return check_containerd_files(root, facts);
  return {};
}

}  // namespace hook
