#include "shim/ttrpc/sockets.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "fabric/text.hpp"

namespace shim {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

Result<UniqueFd> connect_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return make_error("socket `{}`: a path of 1 to {} bytes is needed", fabric::printable(path),
                      sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return sys_error(errno, "cannot make a socket");
  // A signal does not undo a connect to a local socket: it only blocks while the runtime's backlog is full.
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return sys_error(errno, "cannot connect to `{}`", fabric::printable(path));
  return socket;
}

Result<UniqueFd> launched_socket(std::string_view number) {
  const auto fd = fabric::parse_number<int>(number);
  int type = 0;
  socklen_t size = sizeof type;
  if (!fd || *fd < 0 || ::getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return make_error("NRI_PLUGIN_SOCKET=`{}` is not the number of an open stream socket", fabric::printable(number));
  UniqueFd socket(*fd);
  if (::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0) return sys_error(errno, "cannot set close-on-exec");
  return socket;
}

}  // namespace shim
