#include "hook/rails/address/ipam_helper.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/rails/address/serve_ipam.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr int kSlackMs = 2000;  // beyond the plugins' own time, for starting and killing them

Result<void> send_calls(int channel, const std::vector<IpamCall>& calls, int timeout_ms) {
  Json request = {{"timeout_ms", timeout_ms}, {"calls", Json::array()}};
  for (const IpamCall& call : calls)
    request["calls"].push_back(to_json(call));
  return send_frame(channel, request.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<PluginEnd> receive_end(int channel, int timeout_ms) {
  const std::string text = TRY(receive_frame(channel, timeout_ms));
  const Json json = TRY(parse_json(text, "answer", {.bytes = kLargestFrame}));
  try {
    return end_from_json(json);
  } catch (const std::exception& error) {
    return fabric::make_error("{}", error.what());
  }
}

// What the plugin said last, if it is an error as the specification wants it; else how it ended.
std::string cause_of(const PluginEnd& end) {
  if (auto said = cni_error_of(end.out)) return *std::move(said);
  const std::string cause = WIFSIGNALED(end.status) ? fmt::format("signal {}", WTERMSIG(end.status))
                                                    : fmt::format("exit status {}", WEXITSTATUS(end.status));
  return fabric::trim(end.out).empty() ? cause : cause + ": " + quote_output(end.out);
}

Error plugin_error(const IpamCall& call, const PluginEnd& end, std::string cause) {
  const char* verb = call.command == IpamCall::Command::kAdd ? "get an address" : "give an address back";
  if (!fabric::trim(end.err).empty()) cause += "; it wrote: " + quote_output(end.err);
  return Error{.message = fmt::format("cannot {} for `{}` by IPAM plugin `{}`: {}", verb,
                                      fabric::printable(call.ifname), fabric::printable(call.plugin), cause),
               .code = end.code,
               .hint = end.hint};
}

// What a plugin's end means for the caller.
Result<IpamResult> to_result(const IpamCall& call, const PluginEnd& end) {
  if (!end.refusal.empty()) return plugin_error(call, end, end.refusal);
  if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0) return plugin_error(call, end, cause_of(end));
  if (call.command == IpamCall::Command::kDel) return IpamResult();
  auto result = parse_ipam_result(end.out);
  if (!result) return plugin_error(call, end, result.error().message);
  return result;
}

}  // namespace

IpamHelper::IpamHelper(pid_t pid, UniqueFd channel) : pid_(pid), channel_(std::move(channel)) {}

IpamHelper::IpamHelper(IpamHelper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), channel_(std::move(other.channel_)) {}

IpamHelper& IpamHelper::operator=(IpamHelper&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(channel_, other.channel_);
  return *this;
}

// No kill(2): the hook's filter has none. The helper sees the end of the channel whatever it does.
IpamHelper::~IpamHelper() {
  channel_.reset();
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<IpamHelper> IpamHelper::start(const std::vector<IpamProgram>& programs) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return sys_error(errno, "cannot make a pair of sockets for the helper of IPAM plugins");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "cannot fork the helper for IPAM plugins");
  if (child == 0) serve_ipam(theirs.get(), parent, programs);
  return IpamHelper(child, std::move(ours));
}

Result<std::optional<IpamHelper>> IpamHelper::start_if_any(const std::vector<IpamProgram>& programs) {
  if (programs.empty()) return std::optional<IpamHelper>();
  return std::optional<IpamHelper>(TRY(start(programs)));
}

std::vector<Result<IpamResult>> IpamHelper::run(const std::vector<IpamCall>& calls, int timeout_ms) {
  std::vector<Result<IpamResult>> results;
  if (calls.empty()) return results;
  const auto sent =
      channel_.ok() ? send_calls(channel_.get(), calls, timeout_ms) : Result<void>(sys_error(EPIPE, "it has ended"));
  const long deadline = monotonic_ms() + timeout_ms + kSlackMs;
  std::optional<Error> broken;
  if (!sent) broken = sent.error();
  for (const IpamCall& call : calls) {
    const long left = std::max(0L, deadline - monotonic_ms());
    auto end = broken ? Result<PluginEnd>(*broken) : receive_end(channel_.get(), static_cast<int>(left));
    if (end) {
      results.push_back(to_result(call, *end));
      continue;
    }
    broken = end.error();
    channel_.reset();  // what still came would answer another question
    results.push_back(fabric::wrap(*broken, fmt::format("cannot run IPAM plugin `{}`: its helper", call.plugin)));
  }
  return results;
}

}  // namespace hook
