#include "hook/admin/install/query_engine.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

// The maximal number of bytes that a message quotes from an engine's output, because some engines print their whole
// usage.
constexpr std::size_t kShownOfEngine = 400;

constexpr Word<Engine> kEnginePrograms[] = {{"containerd", Engine::kContainerd},
                                            {"crio", Engine::kCrio},
                                            {"dockerd", Engine::kDocker},
                                            {"podman", Engine::kPodman}};

// Reads the first "N.N" in the output of `--version`, such as "containerd github.com/containerd/containerd/v2
// 2.1.9+unknown".
bool parse_version(std::string_view text, int& major, int& minor) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at]) || (at > 0 && is_digit(text[at - 1]))) continue;
    std::array<int, 2> parts{};
    std::size_t end = at;
    std::size_t part = 0;
    for (; end < text.size() && part < 2; ++end) {
      if (is_digit(text[end]) && parts[part] < 10'000) {
        parts[part] = parts[part] * 10 + (text[end] - '0');
      } else if (part == 0 && text[end] == '.' && end + 1 < text.size() && is_digit(text[end + 1])) {
        ++part;
      } else {
        break;
      }
    }
    if (part == 0) continue;
    major = parts[0];
    minor = parts[1];
    return true;
  }
  return false;
}

// Returns the last line, because engines print the fatal error last, after warnings.
std::string_view last_line(std::string_view messages) {
  messages = base::trim(messages);
  return messages.substr(messages.rfind('\n') + 1);
}

Result<std::string> read_config_by(const std::string& root, const FoundEngine& engine,
                                   const std::vector<std::string>& arguments, const std::string& variable,
                                   const std::string& why_refused) {
  std::vector<std::string> all{engine.program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Answer answer = TRY(query_program(root, all, variable));
  if (answer.done) return std::move(answer.text);
  // Docker before 23 has no `--validate`, so it cannot check a configuration. This is no error.
  if (answer.messages.find("unknown flag: --validate") != std::string::npos) return std::string();
  return Error{fmt::format("{}: {}", why_refused, shown(last_line(answer.messages), kShownOfEngine)), EINVAL};
}

}  // namespace

Result<std::vector<FoundEngine>> find_engines(const std::string& root) {
  std::vector<FoundEngine> found;
  for (const auto& [name, engine] : kEnginePrograms) {
    const auto program = find_engine_program(root, std::string(name));
    if (!program) continue;
    FoundEngine one;
    one.engine = engine;
    one.program = *program;
    const auto answer = query_program(root, {one.program, "--version"});
    if (!answer && answer.error().code == EPERM) return answer.error();
    // A program that cannot run, such as a file that a removed package left, is listed with its error. The search for
    // other engines continues.
    if (!answer) {
      one.trouble = answer.error().message;
      one.remedy = base::remedy_of(answer.error());
    } else if (!answer->done || !parse_version(answer->text, one.major, one.minor)) {
      one.trouble = shown(last_line(answer->messages), kShownOfEngine);
      if (one.trouble.empty()) one.trouble = fmt::format("`{} --version` prints nothing", one.program);
    }
    found.push_back(std::move(one));
  }
  return found;
}

Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                        const std::string& why_refused) {
  const auto ask = [&](const std::vector<std::string>& arguments) {
    return read_config_by(root, engine, arguments, {}, why_refused);
  };
  const auto has_file = [&](const char* path) { return node_has(root, path, F_OK); };
  switch (engine.engine) {
    case Engine::kContainerd:  // `config dump` of containerd 1.7 fails without the file
      return ask({"config", has_file("/etc/containerd/config.toml") ? "dump" : "default"});
    case Engine::kCrio:
      return ask({"config"});
    case Engine::kDocker:
      if (!has_file("/etc/docker/daemon.json")) return std::string();
      return ask({"--validate", "--config-file", "/etc/docker/daemon.json"});
    default:
      return ask({"--version"});  // `podman version` would also open the storage, which can fail
  }
}

Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine,
                                           const std::string& file) {
  const std::string why = fmt::format("`{}` refuses the new configuration", engine.program);
  switch (engine.engine) {
    case Engine::kContainerd:
      return read_config_by(root, engine, {"-c", file, "config", "dump"}, {}, why);
    case Engine::kCrio:
      return read_config_by(root, engine, {"-c", file, "config"}, {}, why);
    case Engine::kDocker:
      return read_config_by(root, engine, {"--validate", "--config-file", file}, {}, why);
    default:
      return read_config_by(root, engine, {"--version"}, "CONTAINERS_CONF=" + file, why);
  }
}

}  // namespace hook
