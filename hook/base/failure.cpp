#include "hook/base/failure.hpp"

#include <cerrno>
#include <iterator>

namespace hook {

std::string_view to_string(FailureReason reason) {
  constexpr std::string_view kNames[] = {"state",   "config",      "refused", "no-hca",  "busy",    "ledger",
                                         "network", "unreachable", "devices", "timeout", "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FailureReason::kInternal) + 1);
  return kNames[static_cast<std::size_t>(reason)];
}

FailureReason failure_reason(FailureReason phase, int code) {
  if (code == ETIMEDOUT) return FailureReason::kTimeout;
  // Of fork(2) it would be about processes, which only devices and plugins need.
  const bool locks = phase == FailureReason::kRefused || phase == FailureReason::kBusy ||
                     phase == FailureReason::kNoHca || phase == FailureReason::kLedger;
  if (code == EAGAIN && (locks || phase == FailureReason::kNetwork)) return FailureReason::kTimeout;
  if (code == EHOSTUNREACH && phase == FailureReason::kNetwork) return FailureReason::kUnreachable;
  // Refusals have no errno: system calls on the ledger's files have.
  if (code == EBUSY && locks) return FailureReason::kBusy;
  return code != 0 && locks ? FailureReason::kLedger : phase;
}

}  // namespace hook
