// `rdma-hook cdi generate`.
#pragma once

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/program/options.hpp"

namespace hook {

// Prints the specification, or with --out writes it to that file: whole or not at all, and not touched when it says the
// same already, since engines watch the directory. Errors: as cdi_spec(); the file cannot be written.
fabric::Result<void> generate_cdi(const Options& options, const Log& log);

}  // namespace hook
