// The default directory of the ledger.
#pragma once

namespace hook {

inline constexpr const char* kLedgerPath = "/run/rdma-hook";

}  // namespace hook
