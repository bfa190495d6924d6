// Rules that an engine checks only when it starts, and that the configuration which it prints or validates does not
// show: they concern the command line and the variables of its unit. docs/support.md lists them with their sources, and
// tests/node/test_install_roots.py has a node for each row of kStartRules.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {
namespace {

enum class Clash {
  kOtherFile,   // the engine does not read the file or directory that install writes
  kAddsTo,      // the engine uses the directories of the option in place of those of the files
  kOverrides,   // the engine uses the option in place of the setting that it prints without the option
  kTurnsOff,    // the engine uses the option in place of the setting if the option's value is false
  kSameHandler  // the value names a handler `rdma`, which install writes
};

struct StartRule {
  Engine engine;
  Clash clash;
  const char* option;
  const char* short_option;         // "": none
  const char* variable;             // the variable of the unit with the same effect; "": there is none
  const char* setting;              // the path or setting of install that the option concerns
  std::optional<InstallWay> way{};  // nullopt: all ways
};

constexpr StartRule kStartRules[] = {
    {Engine::kContainerd, Clash::kOtherFile, "config", "c", "", "/etc/containerd/config.toml"},
    {Engine::kCrio, Clash::kOtherFile, "config-dir", "d", "CONTAINER_CONFIG_DIR", "/etc/crio/crio.conf.d"},
    {Engine::kCrio, Clash::kOtherFile, "config", "c", "CONTAINER_CONFIG", "/etc/crio/crio.conf"},
    {Engine::kCrio, Clash::kOverrides, "default-runtime", "", "CONTAINER_DEFAULT_RUNTIME", "default_runtime"},
    {Engine::kCrio, Clash::kOverrides, "conmon", "", "CONTAINER_CONMON", "conmon"},
    {Engine::kCrio, Clash::kTurnsOff, "enable-nri", "", "", "enable_nri", InstallWay::kNri},
    {Engine::kCrio, Clash::kAddsTo, "hooks-dir", "", "CONTAINER_HOOKS_DIR", "hooks_dir", InstallWay::kNri},
    {Engine::kCrio, Clash::kAddsTo, "hooks-dir", "", "CONTAINER_HOOKS_DIR", "hooks_dir", InstallWay::kHook},
    {Engine::kCrio, Clash::kSameHandler, "runtimes", "", "CONTAINER_RUNTIMES", "[crio.runtime.runtimes.rdma]",
     InstallWay::kRuntime},
    {Engine::kDocker, Clash::kOtherFile, "config-file", "", "", "/etc/docker/daemon.json"},
    {Engine::kDocker, Clash::kSameHandler, "add-runtime", "", "", "runtimes", InstallWay::kRuntime},
};

constexpr std::string_view kFalse[] = {"0", "f", "F", "false", "False", "FALSE"};

// Appends the values of an option, each with the words that set it as key: `--NAME VALUE`, `--NAME=VALUE`, and the same
// with one dash.
void find_option(const StartRule& rule, const UnitCommand& command, std::vector<FileSetting>& found) {
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
    std::string shown = command.words[at] + (equals == std::string_view::npos && has_next ? " " + value : "");
    found.push_back({command.file, command.line, std::move(shown), std::move(value)});
  }
}

bool clashes(const StartRule& rule, const EngineFacts& facts, std::string_view value) {
  switch (rule.clash) {
    case Clash::kOtherFile: {
      std::string path = std::filesystem::path(value).lexically_normal().string();
      if (path.size() > 1 && path.ends_with('/')) path.pop_back();
      return path != rule.setting;
    }
    case Clash::kOverrides:
      return value != setting_text(facts.settings, "crio.runtime", rule.setting);
    case Clash::kTurnsOff:
      // The words that strconv.ParseBool() of Go takes for false.
      return std::ranges::find(kFalse, value) != std::end(kFalse);
    case Clash::kSameHandler:
      return value.starts_with("rdma=") || value.starts_with("rdma:") || value.find(",rdma:") != std::string_view::npos;
    case Clash::kAddsTo: {
      const std::vector<std::string_view> parts = base::split(value, ',');
      return std::ranges::find(parts, hooks_dir_of(facts)) == parts.end();
    }
  }
  return false;
}

// The short options of dockerd (daemon/command, installFlags() and installConfigFlags()).
constexpr std::pair<char, const char*> kDockerShort[] = {{'b', "bridge"},        {'D', "debug"},     {'G', "group"},
                                                         {'H', "host"},          {'l', "log-level"}, {'p', "pidfile"},
                                                         {'s', "storage-driver"}};
// The keys of daemon.json whose members are no keys (daemon/config, flatOptions).
constexpr std::string_view kDockerFlat[] = {
    "cluster-store-opts", "default-network-opts", "log-opts", "runtimes", "default-ulimits", "features", "builder"};

// Returns the long names of the options in a word of dockerd's command line: `-DH` has two.
std::vector<std::string> docker_options(std::string_view word) {
  if (word.starts_with("--")) return {std::string(word.substr(0, word.find('=')).substr(2))};
  std::vector<std::string> names;
  for (std::size_t at = 1; at < word.size() && word.front() == '-'; ++at) {
    const auto* known = std::ranges::find(kDockerShort, word[at], &std::pair<char, const char*>::first);
    if (known == std::end(kDockerShort)) break;
    names.emplace_back(known->second);
    if (word[at] != 'D') break;  // the rest of the word is the value
  }
  return names;
}

bool has_docker_key(const Json& json, const std::string& key) {
  if (json.contains(key)) return true;
  return std::ranges::any_of(json.items(), [&](const auto& one) {
    return one.value().is_object() && one.value().contains(key) &&
           std::ranges::find(kDockerFlat, one.key()) == std::end(kDockerFlat);
  });
}

// Returns the key of daemon.json for an option: its name, or its plural as `labels` for --label. dockerd merges
// `runtimes` with --add-runtime since 18.09 (skipDuplicates).
std::optional<std::string> key_of_option(const Json& json, const std::string& option) {
  std::vector<std::string> keys{option, option + "s"};
  if (option.ends_with('y')) keys.push_back(option.substr(0, option.size() - 1) + "ies");
  for (std::string& key : keys)
    if (has_docker_key(json, key)) return std::move(key);
  return std::nullopt;
}

Error clash_of(const StartRule& rule, const FileSetting& found) {
  const std::string where = fmt::format("{}, line {}: `{}`", found.file, found.line, found.key);
  switch (rule.clash) {
    case Clash::kOtherFile:
      return {fmt::format("{}: {} would not read `{}`", where, to_string(rule.engine), rule.setting), EEXIST,
              "remove the option, or merge the output of `rdma-hook install --dry-run` of a node without it by hand"};
    case Clash::kSameHandler:
      return {fmt::format("{}: this is a different `rdma` than the one of install", where), EEXIST,
              "remove that handler, or give it another name"};
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
    if (facts.way == InstallWay::kCdi && rule.engine != Engine::kDocker) continue;  // install writes no file for CDI
    std::vector<FileSetting> found;
    find_option(rule, facts.start.command, found);
    // An option wins over the variable.
    const auto variable = facts.start.variables.find(rule.variable);
    if (found.empty() && variable != facts.start.variables.end())
      found.emplace_back(variable->second).key += "=" + variable->second.value;
    // hooks-dir can be given several times, and each adds a directory; so can handlers. For other options the last one
    // counts.
    const auto is_clash = [&](const FileSetting& one) { return clashes(rule, facts, one.value); };
    const bool each_counts = rule.clash == Clash::kSameHandler;
    if (found.empty() || !(each_counts                    ? std::ranges::any_of(found, is_clash)
                           : rule.clash == Clash::kAddsTo ? std::ranges::all_of(found, is_clash)
                                                          : is_clash(found.back())))
      continue;
    return clash_of(rule, each_counts ? *std::ranges::find_if(found, is_clash) : found.back());
  }
  return {};
}

Result<void> check_docker_keys(const EngineFacts& facts, const Json& json) {
  const UnitCommand& command = facts.start.command;
  for (std::size_t at = 1; at < command.words.size(); ++at) {
    const std::string& word = command.words[at];
    for (const std::string& option : docker_options(word)) {
      const auto key = key_of_option(json, option);
      if (!key) continue;
      // A value can have a password, such as that of a proxy.
      return Error{fmt::format("{}, line {}: `{}`: dockerd would not start with this option and `{}` in daemon.json",
                               command.file, command.line, word.substr(0, word.find('=')), *key),
                   EEXIST, fmt::format("remove the option; set its value in `{}` of /etc/docker/daemon.json", *key)};
    }
  }
  return {};
}

}  // namespace hook
