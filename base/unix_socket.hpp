// Unix sockets at a path.
#pragma once

#include <sys/un.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace base {

inline constexpr std::size_t kLongestSocketPath = sizeof(sockaddr_un::sun_path) - 1;  // bytes, without the zero byte

// Returns the address of a socket; nullopt: the path is empty, longer than kLongestSocketPath, or has a zero byte.
std::optional<sockaddr_un> unix_address(std::string_view path);

// Returns true if no process listens at the socket: connect(2) returns ECONNREFUSED. Returns false if the connection
// succeeds, or fails in another way. A program that has called bind(2) and not yet listen(2) is taken for ended, so its
// starter and the caller need a common lock. Errors: unix_address() has none; no socket can be made.
Result<bool> is_abandoned_socket(const std::string& path);

}  // namespace base
