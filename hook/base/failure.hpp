// The reason of a failure. The reasons are few, because each is a time series of the metrics.
#pragma once

#include <cstdint>
#include <string_view>

#include "hook/base/result.hpp"

enum class fabric::Reason : std::uint8_t {
  kUnspecified,
  kState,    // the container's state, bundle or process, as the engine passes it
  kConfig,   // the administrator's configuration
  kRefused,  // the request is wrong, or not allowed
  kNoHca,    // an HCA that does not exist, or a node without any
  kBusy,     // another container holds the HCA, or the limit of the HCA is reached
  kLedger,
  kNetwork,      // rails, and their addresses, routes and RDMA devices
  kUnreachable,  // a gateway that does not answer, or an address that another host has
  kDevices,      // device nodes, device rules, limits, and the view
  kTimeout,      // a lock, a plugin, or hardware that did not return
  kInternal,
};

namespace hook {

using FailureReason = fabric::Reason;

// Returns "state", "config", "refused", "no-hca", "busy", "ledger", "network", "unreachable", "devices", "timeout" or
// "internal".
std::string_view to_string(FailureReason reason);

// Returns the result. Sets the reason of an error that has none.
template <typename T>
Result<T> about(FailureReason reason, Result<T> result) {
  if (!result.has_value() && result.error().reason == FailureReason::kUnspecified) result.error().reason = reason;
  return result;
}

// Returns the reason by which an error is counted: its own reason, made more precise by its errno; kState if the error
// has no reason.
FailureReason failure_reason(const Error& error);

}  // namespace hook
