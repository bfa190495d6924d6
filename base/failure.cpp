#include "base/failure.hpp"

#include <cerrno>
#include <iterator>

namespace base {

std::string_view to_string(FailureReason reason) {
  constexpr std::string_view kNames[] = {"state",  "state",   "config",      "refused", "no-hca",  "busy",
                                         "ledger", "network", "unreachable", "devices", "timeout", "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FailureReason::kInternal) + 1);
  return kNames[static_cast<std::size_t>(reason)];
}

FailureReason failure_reason(const Error& error) {
  const FailureReason reason = error.reason;
  if (error.code == ETIMEDOUT) return FailureReason::kTimeout;
  // The ledger's calls (reasons refused, busy, no-hca and ledger) return EAGAIN if a lock was not free in time. With
  // kNetwork, EAGAIN means the same, or rarely that fork(2) failed. With kDevices it means only that fork(2) failed,
  // which is no timeout.
  const bool locks = reason == FailureReason::kRefused || reason == FailureReason::kBusy ||
                     reason == FailureReason::kNoHca || reason == FailureReason::kLedger;
  if (error.code == EAGAIN && (locks || reason == FailureReason::kNetwork)) return FailureReason::kTimeout;
  if (error.code == EHOSTUNREACH && reason == FailureReason::kNetwork) return FailureReason::kUnreachable;
  // A refusal of a request has no errno. So with the ledger's four reasons, an errno means that a system call on the
  // ledger's files failed. The exception is EBUSY: an HCA or a container is busy.
  if (error.code == EBUSY && locks) return FailureReason::kBusy;
  if (error.code != 0 && locks) return FailureReason::kLedger;
  return reason == FailureReason::kUnspecified ? FailureReason::kState : reason;
}

}  // namespace base
