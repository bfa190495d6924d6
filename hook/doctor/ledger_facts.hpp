// The ledger and its directory as doctor sees them: who holds what, whether that is alive, whether there is room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/doctor/findings.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

struct LedgerFacts {
  std::string path;
  std::uint64_t free_bytes = UINT64_MAX;  // of the file system it is in, or will be
  std::uint64_t free_files = UINT64_MAX;
  bool read_only = false;
  std::vector<Grant> grants;
  // The names that the node's HCAs have now, by PlannedHca::device.
  std::map<std::string, std::vector<std::string>> names;
  bool is_there = false;              // else nothing was given yet
  std::vector<fabric::Error> unread;  // grants, or the ledger as a whole: its mode, its owner
};

// Nothing is made or written; without names.
LedgerFacts read_ledger_facts(const std::string& path);

// Pure.
Check check_ledger(const LedgerFacts& facts);

}  // namespace hook
