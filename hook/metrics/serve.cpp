#include "hook/metrics/serve.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "hook/base/process/ending_signals.hpp"
#include "hook/base/process/sandbox.hpp"
#include "hook/base/write_all.hpp"
#include "hook/metrics/client_room.hpp"
#include "hook/metrics/http_server.hpp"
#include "hook/metrics/serving_user.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr char kReady = 'r';

Result<void> bound_server() {
  constexpr rlim_t kFiles = 2 * kMostClients;
  const rlimit none{0, 0};
  const rlimit files{kFiles, kFiles};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || ::setrlimit(RLIMIT_FSIZE, &none) != 0 ||
      ::setrlimit(RLIMIT_NPROC, &none) != 0)
    return sys_error(errno, "cannot set limits");
  // Behind the change of user, which forgets it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::prctl(PR_SET_DUMPABLE, 0) != 0)
    return sys_error(errno, "cannot tie the server to its reader");
  return {};
}

[[noreturn]] void run_server(const UniqueFd& listener, const UniqueFd& channel, pid_t parent) {
  auto ready = become_serving_user();
  if (ready) ready = bound_server();
  if (ready && ::getppid() != parent) ready = sys_error(ESRCH, "its reader is gone");
  if (ready) ready = restrict_to_serving();
  if (!ready) {
    (void)write_all(channel.get(), ready.error().message + "\n" + ready.error().hint);
    ::_exit(1);
  }
  // From here on write(2) would kill.
  if (::send(channel.get(), &kReady, 1, MSG_NOSIGNAL) != 1) ::_exit(1);
  ::_exit(serve_http(listener, channel) ? 0 : 1);
}

Result<void> wait_for_server(const UniqueFd& channel) {
  std::array<char, 1024> said{};
  const ssize_t count = ::read(channel.get(), said.data(), said.size());
  if (count == 1 && said[0] == kReady) return {};
  const std::string text(said.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return fabric::make_error("the process that serves has ended");
  return Error{text.substr(0, end), EPERM, text.substr(end + 1)};
}

// False: the server is gone.
bool send_text(const UniqueFd& channel, const Result<std::string>& text) {
  const bool ok = text.has_value() && text->size() <= kLargestText;
  const TextHead head{ok ? text->size() : 0, ok ? 1U : 0U};
  const std::string_view bytes(reinterpret_cast<const char*>(&head), sizeof head);
  return write_all(channel.get(), bytes) == 0 && (!ok || write_all(channel.get(), *text) == 0);
}

Result<void> read_for_server(const UniqueFd& channel, const UniqueFd& signals, const ReadMetrics& read,
                             const Log& log) {
  std::string said;  // what stays wrong is said once
  for (;;) {
    std::array<pollfd, 2> fds{{{signals.get(), POLLIN, 0}, {channel.get(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return sys_error(errno, "cannot wait");
    if (fds[0].revents != 0) return {};
    if (fds[1].revents == 0) continue;
    char byte = 0;
    if (::read(channel.get(), &byte, 1) != 1) return fabric::make_error("the process that serves has ended");
    const auto text = read();
    const std::string wrong = text ? "" : text.error().message;
    if (std::exchange(said, wrong) != wrong && !text) log.error(text.error());
    if (!send_text(channel, text)) return fabric::make_error("the process that serves has ended");
  }
}

}  // namespace

Result<void> serve_metrics(const ListenAddress& address, const ReadMetrics& read, const Log& log) {
  UniqueFd listener = TRY(listen_at(address));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_error(errno, "cannot make a pair of sockets");
  UniqueFd own(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "cannot start the process that serves");
  if (child == 0) {
    own.reset();
    run_server(listener, theirs, parent);
  }
  theirs.reset();
  listener.reset();
  auto done = wait_for_server(own);
  if (done) {
    // Not before: a signal then ends both, and nobody is served.
    const UniqueFd signals = TRY(ending_signals());
    done = restrict_process();
    if (done) log.info(fmt::format("serving at {}", address.text));
    if (done) done = read_for_server(own, signals, read, log);
  }
  own.reset();  // which ends the server
  ::waitpid(child, nullptr, 0);
  if (!address.path.empty()) ::unlink(address.path.c_str());
  return done;
}

}  // namespace hook
