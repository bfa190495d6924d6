// Where `rdma-hook metrics --listen` listens.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {

inline constexpr const char* kMetricsSocket = "/run/rdma-init/metrics.sock";

struct ListenAddress {
  std::string path = {};  // absolute; empty: not a unix socket
  sockaddr_storage address = {};
  socklen_t length = 0;
  std::string text = {};  // as it was written
};

// "unix:PATH", "unix:" for kMetricsSocket, "192.0.2.1:9100", "[2001:db8::1]:9100". Addresses, no names: nothing is
// looked up. Errors (EINVAL).
fabric::Result<ListenAddress> parse_listen_address(std::string_view text);

// A listening socket that does not wait. Of a unix socket: mode 0660, in a directory that is made if it is missing,
// mode 0755; what a killed server left there is replaced. Errors: EADDRINUSE, also of a unix socket at which somebody
// listens; what is at the path is no socket.
fabric::Result<fabric::UniqueFd> listen_at(const ListenAddress& address);

}  // namespace hook
