// DIR/views/: what stands in for /sys/class/infiniband* inside containers.
#pragma once

#include <string>

#include "hook/ledger/ledger_files.hpp"

namespace hook {

// The view gets another user; the one that user had is replaced. No view is success. Mounts of it stay: they are of the
// directory, not of its name.
fabric::Result<void> move_view(const LedgerFiles& files, const std::string& from, const std::string& to);

}  // namespace hook
