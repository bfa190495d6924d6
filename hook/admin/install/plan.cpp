#include "hook/admin/install/plan.hpp"

#include <algorithm>
#include <cerrno>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

// The directory for hook files if the engine's hook directories are not writable: image-based systems have a read-only
// /usr.
constexpr const char* kOwnHooksDir = "/etc/containers/oci/hooks.d";
constexpr const char* kDockerConfig = "/etc/docker/daemon.json";

// The hook files in config/hooks.d, which are compiled into the program: name and text.
constexpr std::pair<std::string_view, std::string_view> kHooksFiles[] = {
#include "hooks_files.inc"
};
// The directory in which the files of kHooksFiles expect the programs.
constexpr std::string_view kUsualPrograms = "/usr/local/bin/";

std::string hooks_file(const EngineFacts& facts, std::string_view name) {
  return fmt::format("{}/{}", hooks_dir_of(facts), name);
}

// Adds the hook files whose names begin with `begin`, such as "rdma-hook-crio-verify". In the text of each file,
// replaces kUsualPrograms by facts.programs.
Result<void> add_hooks_files(InstallPlan& plan, const EngineFacts& facts, std::string_view begin) {
  for (const auto& [name, sample] : kHooksFiles) {
    if (!name.starts_with(begin)) continue;
    std::string text(sample);
    const auto at = text.find(kUsualPrograms);
    if (at != std::string::npos) text.replace(at, kUsualPrograms.size(), facts.programs + "/");
    TRY_VOID(add_own_file(plan, facts, hooks_file(facts, name), text));
  }
  return {};
}

// Returns the setting that adds kOwnHooksDir to the hook directories of the engine. Returns an empty text if the engine
// already reads a writable directory.
std::string own_hooks_dir(const EngineFacts& facts, const char* table) {
  if (!facts.hooks_dir.empty()) return {};
  std::string directories;
  for (const std::string& directory : facts.hooks_dirs)
    directories += fmt::format("\"{}\", ", directory);
  return fmt::format("[{}]\nhooks_dir = [{}\"{}\"]\n", table, directories, kOwnHooksDir);
}

// Returns the setting that own_hooks_dir() writes, as name and value.
EngineSettings hooks_setting(const EngineFacts& facts, const char* table) {
  return parse_engine_settings(own_hooks_dir(facts, table));
}

// Parses a JSON object. An empty file counts as an empty object, because dockerd accepts an empty file.
Result<Json> object_of(const std::string& text, const char* path) {
  Json json = base::trim(text).empty() ? Json(Json::object()) : TRY(parse_json(text, path));
  if (!json.is_object()) return make_error("`{}` is not a JSON object", path);
  return json;
}

// Returns the object `name` of a JSON object; adds it if it is missing.
Result<Json*> object_in(Json& json, const char* name) {
  if (!json.contains(name)) json[name] = Json::object();
  if (!json[name].is_object()) return make_error("`{}`: `{}` is not an object", kDockerConfig, name);
  return &json[name];
}

// Returns the number of blanks before the first member; -1 if all members are in one line. With this indentation, lines
// that install does not change stay the same when the file is written again.
int indentation_of(const std::string& text) {
  if (base::trim(text).empty()) return 2;
  const auto line = text.find('\n');
  if (line == std::string::npos) return -1;
  const auto end = text.find_first_not_of(' ', line + 1);
  return end == std::string::npos || end == line + 1 ? 2 : static_cast<int>(end - line - 1);
}

std::string docker_runtime_behind(const Json& json, const Json& runtimes) {
  std::string found;
  const auto usual = json.find("default-runtime");
  for (const auto& [name, runtime] : runtimes.items()) {
    const auto path = runtime.is_object() ? runtime.find("path") : runtime.end();
    if (!runtime.is_object() || path == runtime.end() || !path->is_string()) continue;
    const auto program = path->get<std::string>();
    // If Docker has several runtimes from NVIDIA, its default runtime is preferred, because containers have used that
    // one before install.
    const bool is_usual = usual != json.end() && usual->is_string() && usual->get<std::string>() == name;
    if (is_nvidia_runtime(program) && (found.empty() || is_usual)) found = program;
  }
  return found;
}

Error runtime_of_others(std::string_view place, std::string_view ours) {
  return {fmt::format("{}: there is already a different runtime `rdma`", place), EEXIST,
          fmt::format("remove it or merge by hand: {}", ours)};
}

// Returns "FILE, line N" of the first `"rdma"` in the text of daemon.json.
std::string line_of_rdma(std::string_view text) {
  const std::string_view before = text.substr(0, text.find("\"rdma\""));
  return fmt::format("{}, line {}", kDockerConfig, std::ranges::count(before, '\n') + 1);
}

Result<void> plan_docker(InstallPlan& plan, const EngineFacts& facts) {
  const auto before = TRY(file_of(facts, kDockerConfig));
  const Json old = TRY(object_of(before.value_or(""), kDockerConfig));
  Json json = old;
  std::string behind;
  if (facts.way == InstallWay::kRuntime) {
    const Json entry = {{"path", facts.programs + "/rdma-runtime"}};
    Json& runtimes = *TRY(object_in(json, "runtimes"));
    behind = docker_runtime_behind(json, runtimes);
    if (runtimes.contains("rdma") && runtimes["rdma"] != entry)
      return runtime_of_others(line_of_rdma(before.value_or("")), "\"rdma\": " + entry.dump());
    runtimes["rdma"] = entry;
  } else if (facts.way == InstallWay::kCdi) {
    (*TRY(object_in(json, "features")))["cdi"] = true;
  } else {
    return Error{fmt::format("Docker does not support `--way {}`", to_word(kInstallWays, facts.way)), EOPNOTSUPP,
                 "use `--way runtime` or `--way cdi`"};
  }
  TRY_VOID(check_docker_keys(facts, json));
  // The whole file is written again from the parsed JSON, with the same indentation. JSON has no comments that this
  // could lose.
  if (json != old) {
    std::string text = json.dump(indentation_of(before.value_or("")));
    if (!before || before->ends_with('\n')) text += '\n';
    plan.edits.push_back({kDockerConfig, before, std::move(text)});
  }
  return behind.empty() ? Result<void>() : put_behind(plan, facts, behind);
}

// Returns the name of the table of the default handler. Errors: `crio config` does not print the name of the default
// handler.
Result<std::string> crio_default(const EngineFacts& facts) {
  const std::string name = setting_text(facts.settings, "crio.runtime", "default_runtime");
  if (!name.empty()) return "crio.runtime.runtimes." + name;
  return Error{"`crio config` prints no `default_runtime` in [crio.runtime]", EINVAL,
               "set `default_runtime` in a file of /etc/crio/crio.conf.d, or use `--way hook`; nothing was changed"};
}

constexpr const char* kCrioHandler = "crio.runtime.runtimes.rdma";

// Returns the lines of a handler `rdma` that is a copy of the default handler, with the settings of `own` in place of
// those of the default handler. All settings are copied: for a handler of the type oci without `monitor_path`, CRI-O
// searches conmon in PATH when it starts, and does not start without it (pkg/config, TranslateMonitorFields).
std::string crio_handler(const EngineFacts& facts, const std::string& table, EngineSettings own) {
  // A handler that inherits would execute the default handler's runtime, and a path for the container's platform
  // precedes `runtime_path`, so rdma-runtime would not be executed.
  const bool has_own_path = own.contains({kCrioHandler, "runtime_path"});
  const auto replaces_path = [&](std::string_view key) {
    return key == "inherit_default_runtime" || (has_own_path && key == "platform_runtime_paths");
  };
  for (const auto& [setting, value] : facts.settings)
    if (setting.table == table && !replaces_path(setting.key) && !is_empty_setting(value))
      own.insert({{kCrioHandler, setting.key}, value});
  std::string text = fmt::format("[{}]\n", kCrioHandler);
  for (const auto& [setting, value] : own)
    text += fmt::format("{} = {}\n", setting.key, value);
  std::ranges::replace(text, '\'', '"');
  return text;
}

// Returns the lines of a handler `rdma` that equals the default handler; add_copy_of_default() states the reason.
// Returns an empty text if a handler `rdma` exists, or if the default handler has no `runtime_path`: for a copy without
// `runtime_path`, CRI-O would search a program with the name `rdma` in PATH.
std::string crio_copy(InstallPlan& plan, const EngineFacts& facts, const std::string& table) {
  if (facts.settings.contains({kCrioHandler, "runtime_path"})) return {};
  if (setting_text(facts.settings, table, "runtime_path").empty()) {
    plan.messages.push_back(
        fmt::format("no handler `rdma` is added: `crio config` prints no `runtime_path` in [{}]", table));
    return {};
  }
  return "\n" + crio_handler(facts, table, {});
}

// Returns the table of the handler whose runtime rdma-runtime executes: the default one, or the first other one if the
// default handler is `rdma` itself or starts virtual machines. Errors: EINVAL, there is none.
Result<std::string> crio_handler_behind(const EngineFacts& facts, const std::string& default_table) {
  const auto fits = [&](const std::string& table) {
    return table != kCrioHandler && setting_text(facts.settings, table, "runtime_type") != "vm";
  };
  if (fits(default_table)) return default_table;
  for (const auto& [setting, value] : facts.settings)
    if (setting.key == "runtime_path" && fits(setting.table) && !is_empty_setting(value)) return setting.table;
  return Error{
      fmt::format("`crio config` prints no handler with an OCI runtime for rdma-runtime: the default one is [{}]",
                  default_table),
      EINVAL,
      "add a handler with crun or runc in a file of /etc/crio/crio.conf.d, or use `--way nri`; nothing was "
      "changed"};
}

// table: the handler whose runtime rdma-runtime executes.
Result<void> plan_crio_runtime(InstallPlan& plan, const EngineFacts& facts, const std::string& table) {
  const std::string program = facts.programs + "/rdma-runtime";
  const std::string theirs = setting_text(facts.settings, kCrioHandler, "runtime_path");
  if (!theirs.empty() && theirs != program)
    return runtime_of_others(where_set(facts, kCrioHandler, "runtime_path", "CRI-O's configuration"),
                             fmt::format("runtime_path = \"{}\"", program));
  plan.meant[{kCrioHandler, "runtime_path"}] = fmt::format("'{}'", program);
  TRY_VOID(check_later_files(facts, kCrioDropIn, plan.meant));
  std::string behind = setting_text(facts.settings, table, "runtime_path");
  for (const auto& [setting, value] : facts.settings)
    if (setting.key == "runtime_path" && !is_nvidia_runtime(behind) && is_nvidia_runtime(value))
      behind = setting_text(facts.settings, setting.table, setting.key);
  if (const auto paths = facts.settings.find({table, "platform_runtime_paths"});
      paths != facts.settings.end() && !is_empty_setting(paths->second))
    plan.messages.push_back(
        fmt::format("`platform_runtime_paths` of [{}] has no effect on handler `rdma`: rdma-runtime executes `{}` for "
                    "images of every platform",
                    table, behind.empty() ? "runc" : behind));
  // rdma-runtime executes the runtime of that handler, so the handler `rdma` must have the same settings, such as the
  // state directory (`runtime_root`, /run/crun for crun).
  EngineSettings own = plan.meant;
  if (!facts.settings.contains({table, "runtime_type"})) own[{kCrioHandler, "runtime_type"}] = "'oci'";
  TRY_VOID(add_own_file(plan, facts, kCrioDropIn, kOurs + crio_handler(facts, table, std::move(own))));
  return behind.empty() ? Result<void>() : put_behind(plan, facts, behind);
}

Result<void> plan_crio(InstallPlan& plan, const EngineFacts& facts) {
  if (facts.way == InstallWay::kCdi) return {};
  const std::string hooks = own_hooks_dir(facts, "crio.runtime");
  if (facts.way == InstallWay::kHook) {
    TRY_VOID(add_hooks_files(plan, facts, "rdma-hook-crio-annotations-"));
    if (hooks.empty()) return {};
    plan.messages.emplace_back("CRI-O reads `hooks_dir` only at its start; run: systemctl restart crio");
    TRY_VOID(check_later_files(facts, kCrioDropIn, hooks_setting(facts, "crio.runtime")));
    return add_own_file(plan, facts, kCrioDropIn, kOurs + hooks);
  }
  const std::string default_table = TRY(crio_default(facts));
  if (facts.way == InstallWay::kNri) {
    TRY_VOID(add_hooks_files(plan, facts, "rdma-hook-crio-verify-"));
    TRY_VOID(check_later_files(facts, kCrioDropIn, hooks_setting(facts, "crio.runtime")));
    // The setting is written always, because older versions of CRI-O disable NRI by default.
    plan.meant[{"crio.nri", "enable_nri"}] = "true";
    TRY_VOID(check_later_files(facts, kCrioDropIn, plan.meant));
    return add_own_file(plan, facts, kCrioDropIn,
                        fmt::format("{}{}{}[crio.nri]\nenable_nri = true\n{}", kOurs, hooks, hooks.empty() ? "" : "\n",
                                    crio_copy(plan, facts, default_table)));
  }
  return plan_crio_runtime(plan, facts, TRY(crio_handler_behind(facts, default_table)));
}

// Returns the first path of an NVIDIA runtime that the text has in quotes; empty if there is none.
std::string quoted_nvidia_runtime(std::string_view text) {
  for (const std::string_view part : base::split(text, '"'))
    if (part.starts_with('/') && is_nvidia_runtime(part)) return std::string(part);
  return {};
}

Result<void> plan_podman(InstallPlan& plan, const EngineFacts& facts) {
  if (facts.way == InstallWay::kNri)
    return Error{"Podman has no NRI", EOPNOTSUPP, "use `--way runtime`, `--way hook` or `--way cdi`"};
  if (facts.way == InstallWay::kCdi) return {};
  if (facts.way == InstallWay::kHook) {
    TRY_VOID(add_hooks_files(plan, facts, "rdma-hook-podman-annotations-"));
    const std::string hooks = own_hooks_dir(facts, "engine");
    TRY_VOID(check_later_files(facts, kPodmanDropIn, hooks_setting(facts, "engine")));
    return hooks.empty() ? Result<void>() : add_own_file(plan, facts, kPodmanDropIn, kOurs + hooks);
  }
  const std::string program = facts.programs + "/rdma-runtime";
  const std::string entry = fmt::format("rdma = [\"{}\"]", program);
  for (const FileSetting& other : find_in_files(facts, "engine.runtimes", "rdma"))
    if (other.value != fmt::format("['{}']", program))
      return runtime_of_others(fmt::format("{}, line {}", other.file, other.line), entry);
  TRY_VOID(add_own_file(plan, facts, kPodmanDropIn, fmt::format("{}[engine.runtimes]\n{}\n", kOurs, entry)));
  std::string behind;
  for (const std::string& file : facts.config_files) {
    const auto text = file_of(facts, file);  // skips a directory and a link to /dev/null, as Podman does
    if (text && *text && behind.empty()) behind = quoted_nvidia_runtime(**text);
  }
  return behind.empty() ? Result<void>() : put_behind(plan, facts, behind);
}

// Returns the NVIDIA runtime that a containerd handler executes; empty if there is none. If several handlers execute
// one, returns the runtime of the default handler.
std::string containerd_runtime_behind(const EngineFacts& facts) {
  std::string found;
  std::string usual;
  for (const auto& [setting, value] : facts.settings) {
    if (setting.key == "default_runtime_name") usual = setting_text(facts.settings, setting.table, setting.key);
    if (setting.key != "BinaryName" || !is_nvidia_runtime(value)) continue;
    if (found.empty() || setting.table.ends_with(".runtimes." + usual + ".options"))
      found = setting_text(facts.settings, setting.table, setting.key);
  }
  return found;
}

Result<InstallPlan> plan_for_engine(const EngineFacts& facts) {
  InstallPlan plan;
  if (facts.slurm) {
    TRY_VOID(plan_slurm(plan, facts));
    return plan;
  }
  TRY_VOID(check_start(facts));
  switch (facts.engine.engine) {
    case Engine::kContainerd: {
      if (facts.way == InstallWay::kCdi) {
        if (facts.engine.major == 1)
          return Error{"containerd 1 has CDI disabled by default", EOPNOTSUPP, "use another `--way`"};
        break;
      }
      TRY_VOID(plan_containerd(plan, facts));
      const std::string behind = containerd_runtime_behind(facts);
      if (behind.empty()) break;
      if (facts.way == InstallWay::kRuntime) {
        TRY_VOID(put_behind(plan, facts, behind));
      } else {
        plan.messages.push_back(fmt::format("`{}` stays in use: this way adds no runtime in front of it", behind));
      }
      break;
    }
    case Engine::kCrio:
      TRY_VOID(plan_crio(plan, facts));
      break;
    case Engine::kDocker:
      TRY_VOID(plan_docker(plan, facts));
      break;
    case Engine::kPodman:
      TRY_VOID(plan_podman(plan, facts));
      break;
    default:
      return make_error("no configuration is known for `{}`", to_string(facts.engine.engine));
  }
  return plan;
}

}  // namespace

std::vector<std::string> plan_files(const EngineFacts& facts) {
  if (facts.slurm) return slurm_files();
  if (facts.engine.engine == Engine::kContainerd) return containerd_files(facts);
  std::vector<std::string> files{kOwnConfig, kDockerConfig, kPodmanDropIn, kCrioDropIn};
  files.insert(files.end(), facts.config_files.begin(), facts.config_files.end());
  for (const auto& [name, text] : kHooksFiles)
    files.push_back(hooks_file(facts, name));
  return files;
}

Result<InstallPlan> plan_install(const EngineFacts& facts) {
  for (const auto& [setting, value] : facts.settings) {
    if (base::is_utf8(setting.table) && base::is_utf8(setting.key) && base::is_utf8(value)) continue;
    return Error{fmt::format("`{}` prints a setting that is not UTF-8: [{}]: {}", facts.engine.program,
                             base::one_line(setting.table), base::one_line(setting.key)),
                 EINVAL, "correct it in the engine's configuration; nothing was changed"};
  }
  auto plan = plan_for_engine(facts);
  // Messages can quote the engine's output, which is foreign text. Control characters are removed before they reach the
  // terminal.
  if (!plan) {
    plan.error().message = base::one_line(plan.error().message);
    plan.error().hint = base::one_line(plan.error().hint);
    return plan;
  }
  for (std::string& line : plan->messages)
    line = base::one_line(line);
  return plan;
}

Result<std::optional<std::string>> file_of(const EngineFacts& facts, const std::string& path) {
  const auto found = facts.files.find(path);
  if (found == facts.files.end()) return make_error("internal error: `{}` was not read before the plan", path);
  return found->second;
}

std::string hooks_dir_of(const EngineFacts& facts) {
  return facts.hooks_dir.empty() ? kOwnHooksDir : facts.hooks_dir;
}

bool is_nvidia_runtime(std::string_view program) {
  const auto slash = program.rfind('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  return program.starts_with("nvidia-container-runtime");
}

Result<void> add_own_file(InstallPlan& plan, const EngineFacts& facts, const std::string& path,
                          const std::string& text) {
  const auto there = TRY(file_of(facts, path));
  if (there == text) return {};
  if (there) return Error{fmt::format("`{}` exists with another content", path), EEXIST, "move it to another place"};
  plan.edits.push_back({path, there, text});
  return {};
}

Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const std::string& program) {
  if (facts.are_runtimes_configured) {
    plan.messages.push_back(
        fmt::format("rdma-init's configuration already has `runtime`: its `runtimes` must begin with `{}`", program));
    return {};
  }
  Json runtimes = Json::array({program});
  // rdma-runtime executes runc if `program` is missing.
  if (program != "runc") runtimes.push_back("runc");
  const Json json = {{"runtime", {{"runtimes", std::move(runtimes)}}}};
  TRY_VOID(add_own_file(plan, facts, kOwnConfig, json.dump() + "\n"));
  plan.messages.push_back(fmt::format("`{}` stays in use behind rdma-runtime: set in `{}`", program, kOwnConfig));
  return {};
}

}  // namespace hook
