// The ledger and its directory as doctor sees them: who holds what, whether that is alive, whether there is room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/doctor/findings.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

// Where the GID of a container's rail was when the container started.
struct PlacedGid {
  std::string holder;  // the grant's label
  std::string hca;
  std::vector<fabric::Address> addresses;
  unsigned index = 0;
};

struct MovedGid {
  PlacedGid placed;
  std::optional<unsigned> index;  // where it is now; nullopt: nowhere
};

struct LedgerFacts {
  std::string path;
  std::uint64_t free_bytes = UINT64_MAX;  // of the file system it is in, or will be
  std::uint64_t free_files = UINT64_MAX;
  bool read_only = false;
  std::vector<Grant> grants;
  // The names that the node's HCAs have now, by PlannedHca::device.
  std::map<std::string, std::vector<std::string>> names;
  std::vector<PlacedGid> gids;        // of the grants that did not vanish
  std::vector<MovedGid> moved;        // of these, as moved_gids() finds them
  bool is_there = false;              // else nothing was given yet
  std::vector<fabric::Error> unread;  // grants, records of rails, or the ledger as a whole: its mode, its owner
};

// Nothing is made or written; without names and moved GIDs.
LedgerFacts read_ledger_facts(const std::string& path);

// Pure: those whose place another GID has, or none, of HCAs whose tables were read.
std::vector<MovedGid> moved_gids(const std::vector<PlacedGid>& placed, const fabric::Inventory& inventory);

// Pure.
Check check_ledger(const LedgerFacts& facts);

}  // namespace hook
