// Rules that an engine checks only when it starts, and that the configuration which it prints or validates does not
// show: they concern the command line and the variables of its unit. docs/support.md lists them with their sources.
#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/text.hpp"
#include "hook/install/plan.hpp"

namespace hook {
namespace {

enum class Clash {
  kOtherFile,   // the engine reads another file or directory than the one that install writes
  kExcludes,    // the engine refuses to start with the option and the setting of the file
  kOverrides,   // the engine uses the option in place of the setting of the file
  kTurnsOff,    // as kOverrides, if the value is false
  kSameHandler  // as kOverrides, if the value names a handler `rdma`
};

struct StartRule {
  Engine engine;
  Clash clash;
  const char* option;
  const char* short_option;         // "": none
  const char* variable;             // the variable of the unit with the same effect; "": none
  const char* setting;              // the path or setting of install that the option concerns
  std::optional<InstallWay> way{};  // nullopt: all ways
};

constexpr StartRule kStartRules[] = {
    {Engine::kContainerd, Clash::kOtherFile, "config", "c", "", "/etc/containerd/config.toml"},
    {Engine::kCrio, Clash::kOtherFile, "config-dir", "d", "CONTAINER_CONFIG_DIR", "/etc/crio/crio.conf.d"},
    {Engine::kCrio, Clash::kTurnsOff, "enable-nri", "", "", "enable_nri", InstallWay::kNri},
    {Engine::kCrio, Clash::kOverrides, "hooks-dir", "", "CONTAINER_HOOKS_DIR", "hooks_dir", InstallWay::kNri},
    {Engine::kCrio, Clash::kOverrides, "hooks-dir", "", "CONTAINER_HOOKS_DIR", "hooks_dir", InstallWay::kHook},
    {Engine::kCrio, Clash::kSameHandler, "runtimes", "", "CONTAINER_RUNTIMES", "[crio.runtime.runtimes.rdma]",
     InstallWay::kRuntime},
    {Engine::kDocker, Clash::kOtherFile, "config-file", "", "", "/etc/docker/daemon.json"},
    {Engine::kDocker, Clash::kExcludes, "add-runtime", "", "", "runtimes", InstallWay::kRuntime},
    {Engine::kDocker, Clash::kExcludes, "feature", "", "", "features", InstallWay::kCdi},
};

constexpr std::string_view kFalse[] = {"0", "f", "F", "false", "False", "FALSE"};

// An option of the command line or a variable, with its value.
struct Given {
  std::string shown;
  std::string value;
  std::string file;
  unsigned line = 0;
};

// Appends the values of an option: `--NAME VALUE`, `--NAME=VALUE`, and the same with one dash.
void find_option(const StartRule& rule, const UnitCommand& command, std::vector<Given>& given) {
  for (std::size_t at = 1; at < command.words.size(); ++at) {
    std::string_view word = command.words[at];
    if (!word.starts_with('-')) continue;
    word.remove_prefix(word.starts_with("--") ? 2 : 1);
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (name != rule.option && (name.empty() || name != rule.short_option)) continue;
    const bool has_next = at + 1 < command.words.size() && !command.words[at + 1].starts_with('-');
    std::string value = equals != std::string_view::npos ? std::string(word.substr(equals + 1))
                        : has_next                       ? command.words[at + 1]
                                                         : std::string();
    given.push_back({command.words[at] + (equals == std::string_view::npos && has_next ? " " + value : ""),
                     std::move(value), command.file, command.line});
  }
}

bool clashes(const StartRule& rule, const EngineFacts& facts, std::string_view value) {
  switch (rule.clash) {
    case Clash::kOtherFile: {
      std::string path = std::filesystem::path(value).lexically_normal().string();
      if (path.size() > 1 && path.ends_with('/')) path.pop_back();
      return path != rule.setting;
    }
    case Clash::kExcludes:
      return true;
    case Clash::kTurnsOff:
      // The words that strconv.ParseBool() of Go takes for false.
      return std::ranges::find(kFalse, value) != std::end(kFalse);
    case Clash::kSameHandler:
      return value.starts_with("rdma:") || value.find(",rdma:") != std::string_view::npos;
    case Clash::kOverrides: {
      const std::vector<std::string_view> parts = base::split(value, ',');
      return std::find(parts.begin(), parts.end(), hooks_dir_of(facts)) == parts.end();
    }
  }
  return false;
}

Error clash_of(const StartRule& rule, const Given& given) {
  const std::string where = fmt::format("{}, line {}: `{}`", given.file, given.line, given.shown);
  switch (rule.clash) {
    case Clash::kOtherFile:
      return {fmt::format("{}: {} would not read `{}`", where, to_string(rule.engine), rule.setting), EEXIST,
              "remove the option, or merge the output of `rdma-hook install --dry-run` of a node without it by hand"};
    case Clash::kExcludes:
      return {fmt::format("{}: dockerd would not start with this option and `{}` in daemon.json", where, rule.setting),
              EEXIST, fmt::format("move its value into `{}` of /etc/docker/daemon.json", rule.setting)};
    default:
      return {
          fmt::format("{}: {} would use it in place of `{}` in its files", where, to_string(rule.engine), rule.setting),
          EEXIST, "move its value into a file of /etc/crio/crio.conf.d"};
  }
}

}  // namespace

Result<void> check_start(const EngineFacts& facts) {
  for (const StartRule& rule : kStartRules) {
    if (rule.engine != facts.engine.engine || (rule.way && *rule.way != facts.way)) continue;
    if (facts.way == InstallWay::kCdi && rule.engine != Engine::kDocker) continue;  // install writes no file
    std::vector<Given> given;
    find_option(rule, facts.start.command, given);
    // An option wins over the variable.
    const auto variable = facts.start.variables.find(rule.variable);
    if (given.empty() && variable != facts.start.variables.end())
      given.push_back({fmt::format("{}={}", variable->first, variable->second.value), variable->second.value,
                       variable->second.file, variable->second.line});
    // hooks-dir can be given several times, and each adds a directory. For other options the last one counts.
    const auto is_clash = [&](const Given& one) { return clashes(rule, facts, one.value); };
    const bool each_counts = rule.clash == Clash::kSameHandler || rule.clash == Clash::kExcludes;
    if (given.empty() || !(each_counts                       ? std::any_of(given.begin(), given.end(), is_clash)
                           : rule.clash == Clash::kOverrides ? std::all_of(given.begin(), given.end(), is_clash)
                                                             : is_clash(given.back())))
      continue;
    return clash_of(rule, each_counts ? *std::find_if(given.begin(), given.end(), is_clash) : given.back());
  }
  return {};
}

}  // namespace hook
