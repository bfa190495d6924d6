#include "base/unix_socket.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace base {

std::optional<sockaddr_un> unix_address(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kLongestSocketPath || path.find('\0') != std::string_view::npos)
    return std::nullopt;
  path.copy(address.sun_path, path.size());
  return address;
}

Result<bool> is_abandoned_socket(const std::string& path) {
  const auto address = unix_address(path);
  if (!address) return make_error("cannot test `{}`: no path of a socket", printable(path));
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return sys_error(errno, "cannot make a socket to test `{}`", printable(path));
  const bool is_connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0;
  return !is_connected && errno == ECONNREFUSED;
}

}  // namespace base
