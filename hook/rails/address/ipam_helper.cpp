#include "hook/rails/address/ipam.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "base/json/error.hpp"
#include "base/json/json.hpp"
#include "base/process/helper.hpp"
#include "base/process/sandbox.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"

namespace hook {
namespace {

constexpr int kSlackMs = 2000;  // time for starting and killing plugins, in addition to their limit
constexpr int kChannel = 3;     // descriptor number of the channel in the helper
// The limit fits the longest output of a plugin: 1 MiB of control characters, which JSON writes as \u0001.
constexpr std::size_t kLargestFrame = std::size_t{16} << 20;

Result<void> send_json(FrameSocket& channel, const Json& json) {
  return channel.send(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Calls use(name, member) for each member of an IpamCall. `use` writes the member to JSON or reads it from JSON.
// call: const if its members are written to JSON.
void each_member_of_call(auto& call, auto use) {
  use("command", call.command);
  use("plugin", call.plugin);
  use("network", call.network);
  use("ipam", call.ipam);
  use("container_id", call.container_id);
  use("netns", call.netns);
  use("ifname", call.ifname);
  use("args", call.args);
}

// Closes all descriptors except the channel, and opens /dev/null as stdin, stdout and stderr. An engine waits until no
// process has the hook's outputs open, so the helper must close these outputs.
bool close_all_but(int channel) {
  if (channel != kChannel && ::dup3(channel, kChannel, O_CLOEXEC) < 0) return false;
  close_from(kChannel + 1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return false;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::dup2(null, fd) < 0) return false;
  if (null > STDERR_FILENO) ::close(null);
  return true;
}

void serve_one(FrameSocket& channel, const std::vector<IpamProgram>& programs) {
  const auto text = channel.receive();
  if (!text) ::_exit(0);
  const auto request = parse_json(*text, "request", {.bytes = kLargestFrame});
  if (!request) ::_exit(1);
  std::vector<IpamCall> calls;
  for (const Json& json : request->at("calls")) {
    IpamCall& call = calls.emplace_back();
    each_member_of_call(call, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  }
  for (const PluginEnd& end : run_plugins(calls, programs, request->at("timeout_ms").get<int>(), channel.fd())) {
    const Json answer = {{"refusal", end.refusal ? base::error_text(*end.refusal) : ""},
                         {"status", end.status},
                         {"out", end.out},
                         {"err", end.err}};
    if (!send_json(channel, answer)) ::_exit(0);
  }
}

// Receives calls and sends their results, until the channel is closed.
[[noreturn]] void serve_ipam(int channel, const std::vector<IpamProgram>& programs) {
  if (!close_all_but(channel)) ::_exit(1);
  // An engine may start the hook with SIGCHLD ignored, and the kernel would then discard the exit status of plugins.
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  FrameSocket frames(UniqueFd(kChannel), kLargestFrame);
  try {
    for (;;)
      serve_one(frames, programs);
  } catch (const std::exception&) {  // bad_alloc, or a malformed request
    ::_exit(1);
  }
}

Result<void> send_calls(FrameSocket& channel, const std::vector<IpamCall>& calls, int timeout_ms) {
  Json request = {{"timeout_ms", timeout_ms}, {"calls", Json::array()}};
  for (const IpamCall& call : calls) {
    Json& json = request["calls"].emplace_back();
    each_member_of_call(call, [&](const char* name, const auto& value) { json[name] = value; });
  }
  return send_json(channel, request);
}

Result<PluginEnd> receive_end(FrameSocket& channel, Deadline deadline) {
  const std::string_view text = TRY(channel.receive(deadline));
  const Json json = TRY(parse_json(text, "answer", {.bytes = kLargestFrame}));
  try {
    PluginEnd end;
    if (const auto refusal = json.at("refusal").get<std::string>(); !refusal.empty())
      end.refusal = base::parse_error(refusal).value_or(Error{refusal});
    json.at("status").get_to(end.status);
    json.at("out").get_to(end.out);
    json.at("err").get_to(end.err);
    return end;
  } catch (const std::exception&) {  // bad_alloc, or a malformed answer
    return make_error("the helper of IPAM plugins sent a malformed answer");
  }
}

// Returns the text of the plugin's error object. If the plugin's output is no such object, returns its exit status and
// output.
std::string cause_of(const PluginEnd& end) {
  if (auto reported = cni_error_of(end.out)) return *std::move(reported);
  const std::string cause = WIFSIGNALED(end.status) ? fmt::format("signal {}", WTERMSIG(end.status))
                                                    : fmt::format("exit status {}", WEXITSTATUS(end.status));
  return base::trim(end.out).empty() ? cause : cause + ": " + quote_output(end.out);
}

Error plugin_error(const IpamCall& call, const PluginEnd& end, Error cause) {
  const char* verb = call.command == IpamCall::Command::kAdd ? "get an address" : "release an address";
  if (!base::trim(end.err).empty()) cause.message += "; it wrote: " + quote_output(end.err);
  return base::wrap(std::move(cause), fmt::format("cannot {} for `{}` by IPAM plugin `{}`", verb,
                                                  base::printable(call.ifname), base::printable(call.plugin)));
}

// Converts the end of a plugin to the result of its call.
Result<IpamResult> to_result(const IpamCall& call, const PluginEnd& end) {
  if (end.refusal) return plugin_error(call, end, *end.refusal);
  if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0) return plugin_error(call, end, Error{cause_of(end)});
  if (call.command == IpamCall::Command::kDel) return IpamResult();
  auto result = parse_ipam_result(end.out);
  if (!result) return plugin_error(call, end, Error{result.error().message});
  return result;
}

}  // namespace

IpamHelper::IpamHelper(pid_t pid, UniqueFd channel) : pid_(pid), channel_(std::move(channel), kLargestFrame) {}

IpamHelper::IpamHelper(IpamHelper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), channel_(std::move(other.channel_)) {}

IpamHelper& IpamHelper::operator=(IpamHelper&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(channel_, other.channel_);
  return *this;
}

// Closes the channel, which ends the helper even while plugins run. kill(2) cannot be used, because the hook's seccomp
// filter does not allow it.
IpamHelper::~IpamHelper() {
  channel_.close();
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<IpamHelper> IpamHelper::start(const std::vector<IpamProgram>& programs) {
  auto [pid, socket] = base::start_helper(
      SOCK_STREAM, [&](pid_t, const UniqueFd&, const UniqueFd& theirs) { serve_ipam(theirs.get(), programs); });
  if (!socket.ok()) return sys_error(errno, "cannot make a pair of sockets for the helper of IPAM plugins");
  if (pid < 0) return sys_error(errno, "cannot fork the helper for IPAM plugins");
  return IpamHelper(pid, std::move(socket));
}

Result<std::optional<IpamHelper>> IpamHelper::start_if_any(const std::vector<IpamProgram>& programs) {
  if (programs.empty()) return std::optional<IpamHelper>();
  return std::optional<IpamHelper>(TRY(start(programs)));
}

std::vector<Result<IpamResult>> IpamHelper::run(const std::vector<IpamCall>& calls, int timeout_ms) {
  std::vector<Result<IpamResult>> results;
  if (calls.empty()) return results;
  const auto sent =
      channel_.ok() ? send_calls(channel_, calls, timeout_ms) : Result<void>(sys_error(EPIPE, "it has ended"));
  const Deadline deadline = from_now(std::chrono::milliseconds(timeout_ms + kSlackMs));
  std::optional<Error> broken;
  if (!sent) broken = sent.error();
  for (const IpamCall& call : calls) {
    auto end = broken ? Result<PluginEnd>(*broken) : receive_end(channel_, deadline);
    if (end) {
      results.push_back(to_result(call, *end));
      continue;
    }
    broken = end.error();
    channel_.close();  // closed: if an answer to this call arrives late, the next call must not take it for its own
    results.push_back(base::wrap(*broken, fmt::format("cannot run IPAM plugin `{}`: its helper", call.plugin)));
  }
  return results;
}

}  // namespace hook
