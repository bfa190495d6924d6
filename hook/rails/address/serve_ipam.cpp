#include "hook/rails/address/serve_ipam.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>

#include "hook/base/json/json.hpp"
#include "hook/base/process/sandbox.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;

constexpr int kChannel = 3;

// Exactly size bytes.
Result<void> receive_all(int channel, char* to, std::size_t size, long deadline) {
  while (size > 0) {
    pollfd waiting{channel, POLLIN, 0};
    const long left = deadline < 0 ? -1 : std::max(0L, deadline - monotonic_ms());
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return sys_error(ETIMEDOUT, "no answer");
    const ssize_t count = ::recv(channel, to, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return sys_error(count < 0 ? errno : EPIPE, "no answer");
    to += count;
    size -= static_cast<std::size_t>(count);
  }
  return {};
}

// An engine waits until no process holds the hook's outputs open any more, so the helper must not.
bool close_all_but(int channel) {
  if (channel != kChannel && ::dup3(channel, kChannel, O_CLOEXEC) < 0) return false;
  close_from(kChannel + 1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return false;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(null, fd) < 0) return false;
  }
  if (null > STDERR_FILENO) ::close(null);
  return true;
}

void serve_one(int channel, const std::vector<IpamProgram>& programs) {
  const auto text = receive_frame(channel, -1);
  if (!text) ::_exit(0);
  const auto request = parse_json(*text, "request", {.bytes = kLargestFrame});
  if (!request) ::_exit(1);
  std::vector<IpamCall> calls;
  for (const Json& call : request->at("calls"))
    calls.push_back(call_from_json(call));
  for (const PluginEnd& end : run_plugins(calls, programs, request->at("timeout_ms").get<int>(), channel)) {
    const std::string answer = to_json(end).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (!send_frame(channel, answer)) ::_exit(0);
  }
}

}  // namespace

Result<void> send_frame(int channel, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame(sizeof size, '\0');
  std::memcpy(frame.data(), &size, sizeof size);
  frame += text;
  std::string_view rest = frame;
  while (!rest.empty()) {
    const ssize_t count = ::send(channel, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return sys_error(errno, "cannot send");
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::string> receive_frame(int channel, int timeout_ms) {
  const long deadline = timeout_ms < 0 ? -1 : monotonic_ms() + timeout_ms;
  char header[sizeof(std::uint32_t)];
  TRY_VOID(receive_all(channel, header, sizeof header, deadline));
  std::uint32_t size = 0;
  std::memcpy(&size, header, sizeof size);
  if (size > kLargestFrame) return Error{fmt::format("a frame of {} bytes", size), EMSGSIZE};
  std::string text(size, '\0');
  TRY_VOID(receive_all(channel, text.data(), size, deadline));
  return text;
}

Json to_json(const IpamCall& call) {
  return {{"add", call.command == IpamCall::Command::kAdd},
          {"plugin", call.plugin},
          {"network", call.network},
          {"ipam", call.ipam},
          {"container_id", call.container_id},
          {"netns", call.netns},
          {"ifname", call.ifname},
          {"args", call.args}};
}

IpamCall call_from_json(const Json& json) {
  IpamCall call;
  call.command = json.at("add").get<bool>() ? IpamCall::Command::kAdd : IpamCall::Command::kDel;
  call.plugin = json.at("plugin").get<std::string>();
  call.network = json.at("network").get<std::string>();
  call.ipam = json.at("ipam");
  call.container_id = json.at("container_id").get<std::string>();
  call.netns = json.at("netns").get<std::string>();
  call.ifname = json.at("ifname").get<std::string>();
  call.args = json.at("args").get<std::string>();
  return call;
}

Json to_json(const PluginEnd& end) {
  return {{"refusal", end.refusal}, {"hint", end.hint}, {"code", end.code},
          {"status", end.status},   {"out", end.out},   {"err", end.err}};
}

PluginEnd end_from_json(const Json& json) {
  return {json.at("refusal").get<std::string>(), json.at("hint").get<std::string>(), json.at("code").get<int>(),
          json.at("status").get<int>(),          json.at("out").get<std::string>(),  json.at("err").get<std::string>()};
}

void serve_ipam(int channel, pid_t parent, const std::vector<IpamProgram>& programs) {
  // The question comes second: no signal is sent for a parent that died before the call.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || !close_all_but(channel)) ::_exit(1);
  // An engine may start the hook with SIGCHLD ignored, and then ended plugins leave nothing to wait for.
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  try {
    for (;;)
      serve_one(kChannel, programs);
  } catch (const std::exception&) {  // bad_alloc, or a malformed request
    ::_exit(1);
  }
}

}  // namespace hook
