// The grants as their records say, for a program that may run in other namespaces than those of the ledger.
#pragma once

#include <functional>
#include <string>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

// Calls use(grant) with each recorded grant, in the order of the keys. It looks at no process, no namespace and not at
// the ledger's place, so it works in any PID namespace: no owner is judged gone, and `vanished` is false. The ledger is
// only read. Returns false if there is no ledger. Errors, `unread`: as Ledger::for_each_at().
fabric::Result<bool> for_each_recorded_grant(const std::string& path,
                                             const std::function<fabric::Result<void>(const Grant&)>& use,
                                             Ledger::Unread* unread = nullptr);

}  // namespace hook
