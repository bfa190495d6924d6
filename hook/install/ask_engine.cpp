#include "hook/install/ask_engine.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"
#include "hook/install/node_files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kLongestAnswer = 16 << 20;
constexpr std::size_t kShownOfEngine = 400;

[[noreturn]] void become(const std::string& root, std::vector<char*>& argv, const std::string& variable, int out,
                         int err) {
  if (!root.empty() && (::chroot(root.c_str()) != 0 || ::chdir("/") != 0)) ::_exit(126);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (!variable.empty()) ::putenv(const_cast<char*>(variable.c_str()));
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

// Its wait status. A child that takes too long is killed.
Result<int> wait_for(pid_t child, const std::string& name, int patience_ms) {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  struct pollfd watched {
    fd.get(), POLLIN, 0
  };
  const bool late = fd.ok() && ::poll(&watched, 1, patience_ms) == 0;
  if (late) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return sys_error(errno, "wait for `{}`", name);
  if (late) return make_error("`{}` gives no answer", name);
  return status;
}

Result<std::string> written_to(int fd, const std::string& name) {
  if (::lseek(fd, 0, SEEK_SET) != 0) return sys_error(errno, "read the answer of `{}`", name);
  return read_text_fd(fd, kLongestAnswer, -1, fmt::format("the answer of `{}`", name));
}

struct EngineProgram {
  Engine engine;
  const char* name;
};
constexpr EngineProgram kEnginePrograms[] = {{Engine::kContainerd, "containerd"},
                                             {Engine::kCrio, "crio"},
                                             {Engine::kDocker, "dockerd"},
                                             {Engine::kPodman, "podman"}};

// The first "N.N" of what `--version` prints: "containerd github.com/containerd/containerd/v2 2.1.9+unknown".
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

// What ends a program is said last.
std::string_view last_line(std::string_view messages) {
  messages = fabric::trim(messages);
  return messages.substr(messages.rfind('\n') + 1);
}

Result<std::string> read_config_by(const std::string& root, const FoundEngine& engine,
                                   const std::vector<std::string>& arguments, const std::string& variable,
                                   const std::string& why_refused) {
  std::vector<std::string> all{engine.program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Answer answer = TRY(ask_program(root, all, variable));
  if (answer.done) return std::move(answer.text);
  // Docker before 23.
  if (answer.messages.find("unknown flag: --validate") != std::string::npos) return std::string();
  return Error{fmt::format("{}: {}", why_refused, shown(last_line(answer.messages), kShownOfEngine)), EINVAL};
}

}  // namespace

Result<Answer> ask_program(const std::string& root, const std::vector<std::string>& arguments,
                           const std::string& variable, int patience_ms) {
  const std::string& name = arguments[0];
  const UniqueFd out(::memfd_create("answer", MFD_CLOEXEC));
  const UniqueFd err(::memfd_create("messages", MFD_CLOEXEC));
  if (!out.ok() || !err.ok()) return sys_error(errno, "make room for the answer of `{}`", name);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "fork");
  if (child == 0) become(root, argv, variable, out.get(), err.get());
  const int status = TRY(wait_for(child, name, patience_ms));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
    return Error{fmt::format("cannot run `{}` in `{}`", name, root), EPERM, "call it as root"};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return make_error("cannot run `{}`", name);
  Answer answer{status == 0, TRY(written_to(out.get(), name)), TRY(written_to(err.get(), name))};
  if (fabric::trim(answer.messages).empty()) answer.messages = answer.text;
  return answer;
}

std::optional<std::string> find_program(const std::string& root, const std::string& name) {
  std::string directories = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  const char* path = root.empty() ? std::getenv("PATH") : nullptr;
  if (path) directories = std::string(path) + ":" + directories;
  for (const std::string_view directory : fabric::split(directories, ':')) {
    std::string program = fmt::format("{}/{}", directory, name);
    if (directory.starts_with('/') && node_has(root, program, X_OK)) return program;
  }
  return std::nullopt;
}

Result<std::vector<FoundEngine>> find_engines(const std::string& root) {
  std::vector<FoundEngine> found;
  for (const auto& [engine, name] : kEnginePrograms) {
    const auto program = find_program(root, name);
    if (!program) continue;
    FoundEngine one;
    one.engine = engine;
    one.program = *program;
    const auto answer = ask_program(root, {one.program, "--version"});
    if (!answer && answer.error().code == EPERM) return answer.error();
    // What is left of one says nothing against the others.
    if (!answer) {
      one.trouble = answer.error().message;
    } else if (!answer->done || !parse_version(answer->text, one.major, one.minor)) {
      one.trouble = last_line(answer->messages);
      if (one.trouble.empty()) one.trouble = fmt::format("`{} --version` says nothing", one.program);
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
    case Engine::kContainerd:  // dump of 1.7 wants a file
      return ask({"config", has_file("/etc/containerd/config.toml") ? "dump" : "default"});
    case Engine::kCrio:
      return ask({"config"});
    case Engine::kDocker:
      if (!has_file("/etc/docker/daemon.json")) return std::string();
      return ask({"--validate", "--config-file", "/etc/docker/daemon.json"});
    default:
      return ask({"--version"});  // `version` looks at its storage, too
  }
}

Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine,
                                           const std::string& file) {
  const std::string why = fmt::format("`{}` refuses what would be written", engine.program);
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
