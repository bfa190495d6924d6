// The words that name reasons of failures in metrics and records.
#pragma once

#include <string_view>

#include "base/result.hpp"

namespace base {

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

}  // namespace base
