// Unix sockets that an ended process has left.
#pragma once

#include <string>

#include "base/result.hpp"

namespace base {

// Returns true if no process listens at the socket: connect(2) returns ECONNREFUSED. Returns false if the connection
// succeeds, or fails in another way. A program that has called bind(2) and not yet listen(2) is taken for ended, so its
// starter and the caller need a common lock. path: shorter than sockaddr_un::sun_path. Errors: no socket can be made.
Result<bool> is_abandoned_socket(const std::string& path);

}  // namespace base
