#include "hook/rails/address/ipam.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "hook/rails/address/ipam_helper.hpp"

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

Result<IpamHelper> IpamHelper::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return sys_error(errno, "cannot make a pair of sockets");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "cannot fork the helper for IPAM plugins");
  if (child == 0) serve_ipam(theirs.get(), parent);
  return IpamHelper(child, std::move(ours));
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
