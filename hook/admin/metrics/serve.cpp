#include "hook/admin/metrics/serve.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/json/error.hpp"
#include "base/process/ending_signals.hpp"
#include "base/process/helper.hpp"
#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "hook/admin/metrics/http_server.hpp"

namespace hook {
namespace {

constexpr int kBacklog = 1024;  // a non-blocking connect(2) to a unix socket fails while the queue is full

Error no_address(std::string_view text) {
  return {fmt::format("cannot listen on `{}`: not an address", printable(text)), EINVAL,
          "pass unix:/PATH, 127.0.0.1:9100 or [::1]:9100"};
}

Error cannot_listen(int code, std::string_view text) {
  Error error = sys_error(code, "cannot listen on `{}`", printable(text));
  if (code == EADDRNOTAVAIL)
    error.hint = "pass an address of this network namespace (`ip address` lists them), or 127.0.0.1 with a port";
  if (code == EADDRINUSE) error.hint = "stop the process that uses this port, or pass another port";
  if (code == ENOENT) error.hint = "make the directory of the socket, or pass another path";
  if (code == EACCES) error.hint = "pass a port above 1023, or a directory that this user can write to";
  return error;
}

ListenAddress listen_address(std::string_view text, const auto& address) {
  ListenAddress listen{.length = sizeof address, .text = std::string(text)};
  std::memcpy(&listen.address, &address, sizeof address);
  return listen;
}

Result<ListenAddress> socket_address(std::string_view text, std::string path) {
  if (path.empty()) path = kMetricsSocket;
  const auto address = base::unix_address(path);
  // Abstract sockets are refused, because they have no permissions.
  if (!address || !path.starts_with('/') || path.ends_with('/')) return no_address(text);
  ListenAddress listen = listen_address(text, *address);
  listen.path = std::move(path);
  return listen;
}

// Removes a socket on which no process listens. Errors: a process listens; the path is not a socket.
Result<void> remove_left_over(const ListenAddress& listen) {
  struct stat seen {};
  if (::lstat(listen.path.c_str(), &seen) != 0) {
    if (errno == ENOENT) return {};
    Error error = sys_error(errno, "cannot stat `{}`", printable(listen.path));
    error.hint = "run the program as root, or pass another path";
    return error;
  }
  if (!S_ISSOCK(seen.st_mode))
    return Error{fmt::format("cannot listen on `{}`: the file is not a socket", printable(listen.path)), EEXIST,
                 "pass another path, or remove the file"};
  if (!TRY(base::is_abandoned_socket(listen.path)))
    return Error{fmt::format("cannot listen on `{}`: another process uses it", printable(listen.path)), EADDRINUSE,
                 "stop that process, or pass another path"};
  if (::unlink(listen.path.c_str()) != 0 && errno != ENOENT)
    return sys_error(errno, "cannot remove `{}`", printable(listen.path));
  return {};
}

constexpr std::size_t kLargestUserFile = std::size_t{64} << 20;

// Checks that no entry of /etc/passwd or /etc/group has the ID kServingUser. Does not call getpwuid(3), because NSS
// would load libraries of the machine into root's process.
Result<void> check_unused(const char* path) {
  const auto text = base::read_file(path, kLargestUserFile);
  if (const auto* failed = std::get_if<base::Unreadable>(&text)) {
    // Minimal images have no user database.
    if (failed->code == ENOENT) return {};
    return sys_error(failed->code, "cannot read `{}`", path);
  }
  const auto name = name_of_id(std::get<std::string>(text), kServingUser);
  if (!name) return {};
  return Error{
      fmt::format("ID {} of the serving process belongs to `{}` in `{}`", kServingUser, base::printable(*name), path),
      EEXIST, "change the ID of that entry"};
}

constexpr char kReady = 'r';

Result<void> bound_server(pid_t parent) {
  constexpr rlim_t kFiles = 2 * kMostClients;
  // In addition to the seccomp filter, these limits forbid the process to write files and to start processes.
  const rlimit none{0, 0};
  const rlimit files{kFiles, kFiles};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || ::setrlimit(RLIMIT_FSIZE, &none) != 0 ||
      ::setrlimit(RLIMIT_NPROC, &none) != 0)
    return sys_error(errno, "cannot set the resource limits of the serving process");
  // Both settings follow the change of user, at which the kernel resets them.
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return sys_error(errno, "cannot make the serving process end with its parent");
  if (!die_with_parent(parent)) return sys_error(ESRCH, "the process that reads the ledger has ended");
  return {};
}

[[noreturn]] void run_server(const UniqueFd& listener, const UniqueFd& channel, pid_t parent) {
  auto ready = become_serving_user();
  if (ready) ready = bound_server(parent);
  if (ready) ready = restrict_to_serving();
  if (!ready) {
    (void)write_all(channel.get(), error_text(ready.error()));
    ::_exit(1);
  }
  // The seccomp filter forbids write(2), so the byte is sent with send(2).
  if (::send(channel.get(), &kReady, 1, MSG_NOSIGNAL) != 1) ::_exit(1);
  ::_exit(serve_http(listener, channel) ? 0 : 1);
}

// The reading process does not know the cause. If the seccomp filter killed the serving process at a forbidden system
// call, the kernel's log names the call.
Error server_ended() {
  return Error{"the process that serves the metrics has ended", 0,
               "search the kernel's log (`dmesg`) for a system call that the seccomp filter refused"};
}

Result<void> wait_for_server(const UniqueFd& channel) {
  // The serving process sends kReady, or its error.
  std::array<char, 4096> answer{};
  const ssize_t count = ::read(channel.get(), answer.data(), answer.size());
  if (count == 1 && answer[0] == kReady) return {};
  return base::parse_error({answer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))})
      .value_or(server_ended());
}

// Returns false if the serving process has ended.
bool send_text(const UniqueFd& channel, const Result<std::string>& text) {
  const bool ok = text.has_value() && text->size() <= kLargestText;
  // A text that is too long is handled like an error of read(): clients get 503.
  const TextHead head{ok ? text->size() : 0, ok ? 1U : 0U};
  const std::string_view bytes(reinterpret_cast<const char*>(&head), sizeof head);
  return write_all(channel.get(), bytes) == 0 && (!ok || write_all(channel.get(), *text) == 0);
}

Result<void> read_for_server(const UniqueFd& channel, const UniqueFd& signals, const ReadMetrics& read,
                             const Log& log) {
  std::string reported;  // last error: each error is logged once
  for (;;) {
    std::array<pollfd, 2> fds{{{signals.get(), POLLIN, 0}, {channel.get(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
      return sys_error(errno, "cannot wait for the serving process");
    if (fds[0].revents != 0) return {};
    if (fds[1].revents == 0) continue;
    char byte = 0;
    if (::read(channel.get(), &byte, 1) != 1) return server_ended();
    const auto text = read();
    const std::string wrong = text ? "" : text.error().message;
    if (std::exchange(reported, wrong) != wrong && !text) log.error(text.error());
    if (!send_text(channel, text)) return server_ended();
  }
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) return socket_address(text, std::string(text.substr(kUnix.size())));
  // The port is behind the last colon, because IPv6 addresses contain colons too.
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return no_address(text);
  const auto port = base::parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string host(text.substr(0, colon));
  if (!port || *port == 0) return no_address(text);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(*port);
    if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return no_address(text);
    return listen_address(text, six);
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(*port);
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return no_address(text);
  return listen_address(text, four);
}

Result<UniqueFd> listen_at(const ListenAddress& listen) {
  constexpr mode_t kSocketDirectoryMode = 0755;
  constexpr mode_t kSocketMode = 0660;
  const bool is_unix = !listen.path.empty();
  if (is_unix) {
    const std::string directory = base::parent_of(listen.path);
    // mkdir(2) applies the umask, which may remove permissions that clients of the socket need.
    if (::mkdir(directory.c_str(), kSocketDirectoryMode) == 0) ::chmod(directory.c_str(), kSocketDirectoryMode);
    TRY_VOID(remove_left_over(listen));
  }
  UniqueFd fd(::socket(listen.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return sys_error(errno, "cannot make a socket for `{}`", printable(listen.text));
  // Without SO_REUSEADDR a restart would fail for a minute, while closed connections are in TIME_WAIT.
  const int yes = 1;
  if (!is_unix) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // Without IPV6_V6ONLY, [::] would also accept IPv4 clients.
  if (listen.address.ss_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  const auto* address = reinterpret_cast<const sockaddr*>(&listen.address);
  // Clients cannot connect before listen(2), so the mode is set in time.
  if (::bind(fd.get(), address, listen.length) != 0 || (is_unix && ::chmod(listen.path.c_str(), kSocketMode) != 0) ||
      ::listen(fd.get(), kBacklog) != 0)
    return cannot_listen(errno, listen.text);
  return fd;
}

std::optional<std::string> name_of_id(std::string_view text, id_t id) {
  constexpr std::size_t kId = 2;  // position of the number in a line NAME:PASSWORD:ID:...
  for (const std::string_view line : base::split(text, '\n')) {
    const auto fields = base::split(line, ':');
    if (fields.size() > kId && base::parse_number<id_t>(fields[kId]) == id) return std::string(fields[0]);
  }
  return std::nullopt;
}

// After the change of user, verifies that the process cannot become root again: an attacker's code in it would try.
Result<void> become_serving_user() {
  if (::geteuid() != 0 && ::getuid() != 0) return {};
  TRY_VOID(check_unused("/etc/passwd"));
  TRY_VOID(check_unused("/etc/group"));
  // The user is changed last, because only root may change groups.
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kServingUser, kServingUser, kServingUser) != 0 ||
      ::setresuid(kServingUser, kServingUser, kServingUser) != 0) {
    return Error{fmt::format("cannot become user {} to serve: {}", kServingUser, std::strerror(errno)), errno,
                 "start `rdma-hook metrics` with the capabilities SETUID and SETGID"};
  }
  if (::setresuid(0, 0, 0) == 0 || ::geteuid() != kServingUser || ::getegid() != kServingUser)
    return make_error("the serving process can still become root");
  return {};
}

Result<void> serve_metrics(const ListenAddress& address, const ReadMetrics& read, const Log& log) {
  UniqueFd listener = TRY(listen_at(address));
  auto [child, own] = start_helper(SOCK_STREAM, [&](pid_t parent, UniqueFd ours, const UniqueFd& theirs) {
    ours.reset();
    run_server(listener, theirs, parent);
  });
  if (!own.ok()) return sys_error(errno, "cannot make a pair of sockets");
  if (child < 0) return sys_error(errno, "cannot start the serving process");
  // From here on, only the serving process has `listener` and the other socket: its end closes the channel and frees
  // the port.
  listener.reset();
  auto done = wait_for_server(own);
  if (done) {
    // SIGTERM and SIGINT are blocked only from here on. An earlier signal ends both processes, and no client is served
    // yet.
    const UniqueFd signals = TRY(ending_signals());
    done = restrict_process();
    if (done) log.info(fmt::format("serving at {}", address.text));
    if (done) done = read_for_server(own, signals, read, log);
  }
  own.reset();  // closing the socket ends the serving process
  ::waitpid(child, nullptr, 0);
  if (!address.path.empty()) ::unlink(address.path.c_str());
  return done;
}

}  // namespace hook
