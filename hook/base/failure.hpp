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
  kNoHca,    // an HCA that does not exist, or a node without HCAs
  kBusy,     // another container holds the HCA, or the limit of the HCA is reached
  kLedger,
  kNetwork,      // rails, and their addresses, routes and RDMA devices
  kUnreachable,  // a gateway that does not answer, or an address that another host has
  kDevices,      // device nodes and rules, limits, and the view
  kTimeout,      // a lock, a plugin or a device was not ready in time
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

// Returns the reason by which metrics count an error: the reason of the error, made more precise by its errno; kState
// if the error has no reason.
FailureReason failure_reason(const Error& error);

}  // namespace hook
