#include "hook/metrics/listen_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::printable;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr int kBacklog = 1024;  // a client of a unix socket that does not wait fails when it is full

Error no_address(std::string_view text) {
  return {fmt::format("`{}` is no address to listen at", printable(text)), EINVAL,
          "write unix:/PATH, 127.0.0.1:9100 or [::1]:9100"};
}

Error cannot_listen(int code, std::string_view text) {
  Error error = sys_error(code, "cannot listen at `{}`", printable(text));
  if (code == EADDRNOTAVAIL)
    error.hint = "name an address that this network namespace has, or 127.0.0.1 with a port; `ip address` lists them";
  if (code == EADDRINUSE) error.hint = "stop the program that listens there, or name another port";
  if (code == EACCES) error.hint = "name a port above 1023, or a directory that this user may write to";
  return error;
}

Result<ListenAddress> unix_address(std::string_view text, std::string path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) path = kMetricsSocket;
  if (!path.starts_with('/') || path.ends_with('/') || path.size() >= sizeof address.sun_path ||
      path.find('\0') != std::string::npos)
    return no_address(text);
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ListenAddress listen{.path = std::move(path), .length = sizeof address, .text = std::string(text)};
  std::memcpy(&listen.address, &address, sizeof address);
  return listen;
}

// Whether nobody listens at the socket that is there. What is no socket stays.
Result<void> remove_left_over(const ListenAddress& listen) {
  struct stat seen {};
  if (::lstat(listen.path.c_str(), &seen) != 0) {
    if (errno == ENOENT) return {};
    return sys_error(errno, "look at `{}`", printable(listen.path));
  }
  if (!S_ISSOCK(seen.st_mode)) {
    return Error{fmt::format("`{}` is there, and no socket", printable(listen.path)), EEXIST,
                 "name another path, or remove it"};
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return sys_error(errno, "make a socket");
  const auto* address = reinterpret_cast<const sockaddr*>(&listen.address);
  if (::connect(probe.get(), address, listen.length) == 0 || errno != ECONNREFUSED) {
    return Error{fmt::format("somebody listens at `{}` already", printable(listen.path)), EADDRINUSE,
                 "end that, or name another path"};
  }
  if (::unlink(listen.path.c_str()) != 0 && errno != ENOENT)
    return sys_error(errno, "remove `{}`", printable(listen.path));
  return {};
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) return unix_address(text, std::string(text.substr(kUnix.size())));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return no_address(text);
  const auto port = fabric::parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string host(text.substr(0, colon));
  if (!port || *port == 0) return no_address(text);
  ListenAddress listen{.text = std::string(text)};
  sockaddr_in six_less{};
  sockaddr_in6 six{};
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(*port);
    if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return no_address(text);
    std::memcpy(&listen.address, &six, sizeof six);
    listen.length = sizeof six;
    return listen;
  }
  six_less.sin_family = AF_INET;
  six_less.sin_port = htons(*port);
  if (::inet_pton(AF_INET, host.c_str(), &six_less.sin_addr) != 1) return no_address(text);
  std::memcpy(&listen.address, &six_less, sizeof six_less);
  listen.length = sizeof six_less;
  return listen;
}

Result<UniqueFd> listen_at(const ListenAddress& listen) {
  constexpr mode_t kDirectoryMode = 0755;
  constexpr mode_t kSocketMode = 0660;
  const bool is_unix = !listen.path.empty();
  if (is_unix) {
    const std::string directory = listen.path.substr(0, std::max<std::size_t>(listen.path.rfind('/'), 1));
    // The umask may be narrower than who connects needs it.
    if (::mkdir(directory.c_str(), kDirectoryMode) == 0) ::chmod(directory.c_str(), kDirectoryMode);
    TRY_VOID(remove_left_over(listen));
  }
  UniqueFd fd(::socket(listen.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return sys_error(errno, "make a socket for `{}`", printable(listen.text));
  const int yes = 1;
  if (!is_unix) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (listen.address.ss_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  const auto* address = reinterpret_cast<const sockaddr*>(&listen.address);
  // Nobody can connect before listen(2), so that the mode is in time.
  if (::bind(fd.get(), address, listen.length) != 0 || (is_unix && ::chmod(listen.path.c_str(), kSocketMode) != 0) ||
      ::listen(fd.get(), kBacklog) != 0)
    return cannot_listen(errno, listen.text);
  return fd;
}

}  // namespace hook
