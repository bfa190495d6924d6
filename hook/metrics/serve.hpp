// `rdma-hook metrics --listen`. The ledger is root's alone, and whoever speaks HTTP with strangers must not be root:
// two processes. The one that reads the ledger knows of clients only that somebody wants the text, by one byte; the
// other one has nothing but its two sockets: a user of its own (serving_user.hpp), no capability, and the dozen system
// calls that serving takes; any other call kills it.
#pragma once

#include <functional>
#include <string>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/metrics/listen_address.hpp"

namespace hook {

// Serves what read() gives, until SIGTERM or SIGINT. After isolate(). A process that is not root's serves as who it is.
// Errors: that of listen_at(), become_serving_user(); the serving process has ended.
using ReadMetrics = std::function<fabric::Result<std::string>()>;
fabric::Result<void> serve_metrics(const ListenAddress& address, const ReadMetrics& read, const Log& log);

}  // namespace hook
