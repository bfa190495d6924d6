#include "hook/rails/address/ipam.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/process/helper.hpp"
#include "base/process/program.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestId = 128;
constexpr std::size_t kMostOfErrors = 4096;
constexpr int kReadsOfFullPipe = 20;  // a full pipe of 1 MiB (pipe-max-size) needs 16 reads of 64 KiB; 4 are spare

constexpr const char* kInstallHint =
    "install the Debian package containernetworking-plugins, or name the plugin's directory as a network's `ipam_dir`";

// Returns whether the text is a name or container id of the CNI specification: [A-Za-z0-9][A-Za-z0-9_.-]*.
bool is_cni_name(std::string_view text) {
  constexpr std::string_view kNeverFirst = "_.-";
  return is_file_name(text, kLongestId) && kNeverFirst.find(text[0]) == std::string_view::npos;
}

bool is_path(std::string_view text) {
  return text.starts_with('/') && text.size() < PATH_MAX &&
         std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

bool is_ifname(std::string_view text) {
  return !text.empty() && text.size() < 16 && text.find_first_of("/:") == std::string_view::npos &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// Checks every text of a call that becomes part of a path or of the environment. The parent is not trusted: it parses
// input of containers, and the restrictions of the parent do not apply to the helper.
Result<void> check_call(const IpamCall& call) {
  const auto bad = [](std::string_view what, std::string_view value) {
    return Error{fmt::format("`{}` is no {}", base::printable(value.substr(0, kLongestId)), what), EINVAL, {}};
  };
  const bool add = call.command == IpamCall::Command::kAdd;
  if (!is_file_name(call.plugin, kLongestId)) return bad("name of a plugin", call.plugin);
  if (!is_cni_name(call.network)) return bad("name of a network", call.network);
  if (!is_cni_name(call.container_id)) return bad("container id", call.container_id);
  if (!is_ifname(call.ifname)) return bad("name of a netdev", call.ifname);
  if ((add || !call.netns.empty()) && !is_path(call.netns)) return bad("path of a network namespace", call.netns);
  if (!call.args.empty() && !is_cni_args(call.args)) return bad("CNI_ARGS of a pod", call.args);
  if (call.ipam.is_object() && call.ipam.contains("type")) return {};
  return bad("`ipam` object with a type", call.ipam.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<const IpamProgram*> known_program(const IpamCall& call, const std::vector<IpamProgram>& programs) {
  const auto known = std::ranges::find_if(programs, [&](const IpamProgram& program) {
    return program.plugin == call.plugin && program.network == call.network && program.ipam == call.ipam &&
           (program.may_allocate || call.command == IpamCall::Command::kDel);
  });
  if (known != programs.end()) return &*known;
  return Error{"neither config.json nor a record named this plugin with this `ipam` object when this process started",
               EPERM, "run `rdma-hook recover` to release recorded leases"};
}

struct FoundProgram {
  UniqueFd fd;
  std::string directory;
};

// Opens the plugin in the first directory that has it. open_program() refuses a program that users other than root can
// change, because the helper executes it as root.
Result<FoundProgram> find_program(const IpamProgram& program) {
  std::string tried;
  for (const std::string& directory : program.directories) {
    auto fd = open_program(fmt::format("{}/{}", directory, program.plugin));
    if (fd) return FoundProgram{std::move(fd).value(), directory};
    if (fd.error().code != ENOENT) return std::move(fd).error();
    tried += (tried.empty() ? "`" : ", `") + base::printable(directory) + "`";
  }
  return Error{fmt::format("it is not in {}", tried), ENOENT, kInstallHint};
}

struct PluginRun {
  // The outputs of the process: the errno of a failed execve(2), stdout and stderr.
  enum Which : std::size_t { kStarted, kOut, kErr, kStreams };
  pid_t pid = -1;  // -1: the plugin does not run yet or has ended
  std::array<ProgramOutput, kStreams> streams;
  PluginEnd end;
};
using PluginPipes = std::array<Pipe, PluginRun::kStreams>;

// Returns a file in memory with this text. A pipe is not used, because writing could block if a plugin does not read.
Result<UniqueFd> make_input(const std::string& text) {
  UniqueFd fd(::memfd_create("ipam", MFD_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "cannot make a file in memory");
  if (const int failed = write_all(fd.get(), text); failed != 0)
    return sys_error(failed, "cannot write its configuration");
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::vector<std::string> environment_of(const IpamCall& call, const std::string& directory) {
  std::vector<std::string> environment = {
      call.command == IpamCall::Command::kAdd ? "CNI_COMMAND=ADD" : "CNI_COMMAND=DEL",
      "CNI_CONTAINERID=" + call.container_id,
      "CNI_NETNS=" + call.netns,
      "CNI_IFNAME=" + call.ifname,
      "CNI_PATH=" + directory,
      "PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!call.args.empty()) environment.push_back("CNI_ARGS=" + call.args);
  return environment;
}

// Executes the plugin in the forked child. Writes the errno of a failure to the pipe kStarted.
[[noreturn]] void become(const IpamCall& call, const FoundProgram& program, pid_t parent, int input,
                         const PluginPipes& pipes) {
  ::setpgid(0, 0);  // makes a process group, so that kill_plugin() also kills children of the plugin
  if (!die_with_parent(parent)) ::_exit(1);
  for (int signal = 1; signal < NSIG; ++signal)
    std::signal(signal, SIG_DFL);  // restores the default, because execve(2) keeps ignored signals
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::umask(022);
  const std::vector<std::string> environment = environment_of(call, program.directory);
  const std::vector<char*> variables = base::pointers_to(environment);
  std::string path = fmt::format("{}/{}", program.directory, call.plugin);
  char* arguments[] = {path.data(), nullptr};
  if (::chdir("/") == 0 && ::dup2(input, STDIN_FILENO) >= 0 &&
      ::dup2(pipes[PluginRun::kOut].out.get(), STDOUT_FILENO) >= 0 &&
      ::dup2(pipes[PluginRun::kErr].out.get(), STDERR_FILENO) >= 0)
    execute_program(program.fd, arguments, variables.data());
  // A successful execve(2) closes the pipe `started` (O_CLOEXEC), so its reader gets data only after a failure.
  const int code = errno;
  (void)!::write(pipes[PluginRun::kStarted].out.get(), &code, sizeof code);
  ::_exit(127);
}

Result<void> start(const IpamCall& call, const std::vector<IpamProgram>& programs, PluginRun& plugin) {
  TRY_VOID(check_call(call));
  const IpamProgram* const known = TRY(known_program(call, programs));
  const FoundProgram program = TRY(find_program(*known));
  const UniqueFd input = TRY(make_input(ipam_config(call)));
  PluginPipes pipes;
  for (Pipe& pipe : pipes) {
    pipe = base::make_pipe();
    if (!pipe.in.ok()) return sys_error(errno, "cannot make a pipe");
  }
  const pid_t parent = ::getpid();
  plugin.pid = ::fork();
  if (plugin.pid < 0) return sys_error(errno, "cannot fork");
  if (plugin.pid == 0) become(call, program, parent, input.get(), pipes);
  for (std::size_t i = 0; i < PluginRun::kStreams; ++i)
    plugin.streams[i].fd = std::move(pipes[i].in);
  return {};
}

// Kills the plugin and its process group. Does not wait for their end, because a process that hangs in the kernel does
// not end.
void kill_plugin(PluginRun& plugin) {
  ::kill(-plugin.pid, SIGKILL);
  ::kill(plugin.pid, SIGKILL);
  ::waitpid(plugin.pid, nullptr, WNOHANG);
  plugin.pid = -1;
}

// Reads a stream, at most `most` times, because a plugin can write faster than this process reads. If the plugin wrote
// more than kMostOutput, kills it and returns false.
bool read_stream(PluginRun& plugin, std::size_t which, int most) {
  const std::size_t keep = which == PluginRun::kOut ? kMostOutput + 1 : kMostOfErrors;
  while (most-- > 0 && plugin.streams[which].fd.ok() && plugin.streams[which].read_some(keep)) {
    if (plugin.streams[PluginRun::kOut].text.size() <= kMostOutput) continue;
    plugin.end.refusal = Error{fmt::format("it writes more than {} bytes", kMostOutput), EFBIG};
    kill_plugin(plugin);
    return false;
  }
  return true;
}

void finish(PluginRun& plugin) {
  ::kill(-plugin.pid, SIGKILL);  // kills the plugin's children; its PID is not reused before waitpid(2)
  for (std::size_t which = 0; which < PluginRun::kStreams; ++which)
    if (!read_stream(plugin, which, kReadsOfFullPipe)) return;
  ::waitpid(plugin.pid, &plugin.end.status, WNOHANG);
  plugin.pid = -1;
  int code = 0;
  const std::string& failure = plugin.streams[PluginRun::kStarted].text;
  if (failure.size() < sizeof code) return;
  std::memcpy(&code, failure.data(), sizeof code);
  plugin.end.refusal = Error{std::strerror(code), code, kInstallHint};
}

void finish_ended(std::vector<PluginRun>& plugins) {
  for (PluginRun& plugin : plugins) {
    siginfo_t info{};
    const bool running = plugin.pid > 0;
    if (running && ::waitid(P_PID, static_cast<id_t>(plugin.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == plugin.pid) {
      finish(plugin);
    }
  }
}

void read_ready(std::vector<PluginRun>& plugins, const std::vector<pollfd>& polled) {
  for (PluginRun& plugin : plugins) {
    for (std::size_t which = 0; which < PluginRun::kStreams && plugin.pid > 0; ++which) {
      const int fd = plugin.streams[which].fd.get();
      const bool ready =
          std::ranges::any_of(polled, [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
      // Each pass reads a stream only once, so that a plugin that writes without end does not delay other plugins.
      if (fd >= 0 && ready) read_stream(plugin, which, 1);
    }
  }
}

std::vector<pollfd> to_poll(const std::vector<PluginRun>& plugins, int channel, int signals) {
  std::vector<pollfd> polled = {{channel, POLLIN | POLLRDHUP, 0}, {signals, POLLIN, 0}};
  for (const PluginRun& plugin : plugins) {
    for (const ProgramOutput& stream : plugin.streams)
      if (plugin.pid > 0 && stream.fd.ok()) polled.push_back({stream.fd.get(), POLLIN, 0});
  }
  return polled;
}

void supervise(std::vector<PluginRun>& plugins, int timeout_ms, int channel, int signals) {
  const Deadline deadline = from_now(std::chrono::milliseconds(timeout_ms));
  const auto runs = [](const PluginRun& plugin) { return plugin.pid > 0; };
  while (std::ranges::any_of(plugins, runs)) {
    auto polled = to_poll(plugins, channel, signals);
    if (::poll(polled.data(), polled.size(), ms_until(deadline, timeout_ms)) < 0 && errno != EINTR) ::_exit(1);
    const bool parent_has_ended = polled[0].revents != 0;  // the parent sends nothing while it waits
    const bool late = ms_until(deadline, timeout_ms) == 0;
    if (polled[1].revents != 0) {
      signalfd_siginfo info{};
      (void)!::read(signals, &info, sizeof info);
    }
    // Output is read before a late plugin is killed: a plugin that ended in time succeeded, even if this process did
    // not run until after the deadline.
    read_ready(plugins, polled);
    finish_ended(plugins);
    for (PluginRun& plugin : plugins) {
      if (!runs(plugin) || !(late || parent_has_ended)) continue;
      plugin.end.refusal = Error{fmt::format("it does not end within {} ms", timeout_ms), ETIMEDOUT};
      kill_plugin(plugin);
    }
    if (parent_has_ended) ::_exit(0);
  }
}

}  // namespace

std::vector<PluginEnd> run_plugins(const std::vector<IpamCall>& calls, const std::vector<IpamProgram>& programs,
                                   int timeout_ms, int channel) {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // reaps plugins for which kill_plugin() did not wait
  }
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  // With a signalfd for SIGCHLD, one poll(2) waits for output and for the end of plugins.
  const UniqueFd signals(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.ok()) ::_exit(1);
  std::vector<PluginRun> plugins(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (auto started = start(calls[i], programs, plugins[i]); !started)
      plugins[i].end.refusal = std::move(started).error();
  }
  supervise(plugins, timeout_ms, channel, signals.get());
  std::vector<PluginEnd> ends;
  for (PluginRun& plugin : plugins) {
    plugin.end.out = std::move(plugin.streams[PluginRun::kOut].text);
    plugin.end.err = std::move(plugin.streams[PluginRun::kErr].text);
    // The output of a plugin that was killed is incomplete, so it is discarded.
    if (plugin.end.refusal) plugin.end.out.clear();
    ends.push_back(std::move(plugin.end));
  }
  return ends;
}

}  // namespace hook
