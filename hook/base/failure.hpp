// What a failure was about: few words, because each is a time series of the metrics.
#pragma once

#include <cstdint>
#include <string_view>

#include "hook/base/result.hpp"

enum class fabric::Reason : std::uint8_t {
  kUnsaid,
  kState,    // what the engine says of the container: its state, bundle or process
  kConfig,   // the administrator's configuration
  kRefused,  // what is asked is wrong, or not allowed
  kNoHca,    // an HCA that does not exist, or a node without any
  kBusy,     // others have it, or its limit is reached
  kLedger,
  kNetwork,      // rails, and the addresses, routes and RDMA devices of them
  kUnreachable,  // a gateway that does not answer, or an address that another host has
  kDevices,      // device nodes, device rules, limits, and the view
  kTimeout,      // a lock, a plugin, or hardware that did not come back
  kInternal,
};

namespace hook {

using FailureReason = fabric::Reason;

// "state", "config", "refused", "no-hca", "busy", "ledger", "network", "unreachable", "devices", "timeout", "internal".
std::string_view to_string(FailureReason reason);

// The result; its error is about this unless it says already what it is about.
template <typename T>
Result<T> about(FailureReason reason, Result<T> result) {
  if (!result.has_value() && result.error().reason == FailureReason::kUnsaid) result.error().reason = reason;
  return result;
}

// The reason to count an error by: what the error itself says, made more precise by its errno; kState when it says
// none.
FailureReason failure_reason(const Error& error);

}  // namespace hook
