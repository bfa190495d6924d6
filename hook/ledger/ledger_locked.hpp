// One HCA whose lock is held: one descriptor, because a node may have many HCAs and whoever starts containers few
// descriptors. The directory is opened again where it is read.
#pragma once

#include <string>

#include "hook/ledger/ledger.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {

struct LockedHcas::Locked {
  std::string name;
  fabric::UniqueFd lock;
};

}  // namespace hook
