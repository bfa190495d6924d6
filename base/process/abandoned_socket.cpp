#include "base/process/abandoned_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>

#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace base {

Result<bool> is_abandoned_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return sys_error(errno, "cannot make a socket to test `{}`", printable(path));
  const bool is_connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return !is_connected && errno == ECONNREFUSED;
}

}  // namespace base
