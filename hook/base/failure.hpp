// What a failure was about: few words, for each is a series.
#pragma once

#include <string_view>

namespace hook {

enum class FailureReason {
  kState,    // what the engine says of the container: its state, bundle or process
  kConfig,   // the administrator's configuration
  kRefused,  // what is asked is wrong, or not allowed
  kNoHca,    // an HCA that does not exist, or a node without any
  kBusy,     // others have it, or its limit is reached
  kLedger,
  kNetwork,      // rails, and the addresses, routes and RDMA devices of them
  kUnreachable,  // a gateway that does not answer, or an address that somebody else has
  kDevices,      // device nodes, device rules, limits, and the view
  kTimeout,      // a lock, a plugin, or hardware that did not come back
  kInternal,
};
// "state", "config", "refused", "no-hca", "busy", "ledger", "network", "unreachable", "devices", "timeout", "internal".
std::string_view to_string(FailureReason reason);

// Of an error with this errno (0: none) while that was being done.
FailureReason failure_reason(FailureReason phase, int code);

}  // namespace hook
