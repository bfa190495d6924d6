// `rdma-hook metrics`: prints the metrics, or serves them over HTTP.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/program/options.hpp"

namespace hook {

// Prints the metrics on stdout. Logs the grants that cannot be read. Errors: the ledger cannot be listed.
Result<void> show_metrics(const Options& options, const Log& log);
// Serves the metrics at options.listen until the process is ended. Logs a grant that cannot be read once. Errors: the
// address is malformed or cannot be used.
Result<void> listen_for_metrics(const Options& options);

}  // namespace hook
