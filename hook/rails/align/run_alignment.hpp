// Carrying an alignment out on live rails, while other containers of the node come and go and change the same tables.
//
// The kernel does GID work later than the netlink call that causes it, but in order: one ordered work queue for the
// whole node (roce_gid_mgmt.c, gid_cache_wq, Linux 6.12). So the calls for all rails are made first; then the tables
// are read until the last placeholder of a rail is in it, which says that everything before it was done. A placeholder
// sits at the wanted index by then and keeps it until the address takes its place. A slot that looks free and is not (a
// GID that a process still uses, or one that MLNX_OFED hides) shows itself by being passed over.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/align/align.hpp"
#include "hook/rails/align/rail_move.hpp"

namespace hook {

struct AlignLimits {
  unsigned max_placeholders = 256;  // at one time, for each rail
  unsigned rounds = 3;
  // Of waiting for the kernel, all rounds together. What must be put back may take half of it longer.
  std::chrono::milliseconds time{2000};
};

struct AlignReport {
  Alignment done;             // from where to where, over all rounds; no moves: the rails agreed already
  std::string text;           // to_string(done)
  unsigned rounds = 0;        // that changed something
  unsigned slots_moved = 0;   // GIDs of addresses that have another index now
  unsigned placeholders = 0;  // that came and went
};

// The tables in `rails` are not looked at but read by the link. Afterwards, success or not, no placeholder is left and
// every address is where it was or at another index. Errors: as plan_alignment() when there is no common index; any
// error of the link; the rails could not be brought together in time. They say at which index every rail is, and which
// address could not be put back.
fabric::Result<AlignReport> run_alignment(std::vector<AlignRail> rails, AlignLink& link,
                                          const AlignLimits& limits = {});

}  // namespace hook
