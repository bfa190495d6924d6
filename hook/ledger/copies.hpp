// Copies of the node's files that views lend to containers: DIR/copies/SIZE-CHECKSUM, closed to writing. Each view has
// hard links to its copies. So all views with a file share its memory, a view stays whole without DIR/copies, and a
// copy that no view has is a file with one link. A program of an older version writes its copies into its own views,
// and never changes DIR/copies.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// Mode of the files in a view. Any user of a container may read them.
inline constexpr mode_t kViewFileMode = 0444;

// DIR/copies, locked as long as this object lives: a copy without a view can then neither get one nor be removed by
// another process. Locks: the caller may hold the lock of one view, and takes no lock afterwards.
class Copies {
 public:
  // Opens the directory, and makes it if it is missing. timeout_ms: longest wait for the lock. Errors: those of
  // open_directory() and KeyLock::take().
  static Result<Copies> open(const LedgerFiles& files, int timeout_ms = kKeyLockTimeoutMs);
  // Opens the directory and calls remove_unused(). Succeeds if there is no directory.
  static Result<void> remove_unused(const LedgerFiles& files, int timeout_ms);

  // Adds the file entry.copy of the node to an open directory of a view, as entry.name. Reads the file in blocks.
  // path: path of the new entry, for messages. Errors: the file is another file than when it was found (entry.text), or
  // was changed while it was copied; it cannot be read or copied. The directory may then have an incomplete entry.
  Result<void> add(int directory, const ViewEntry& entry, const std::string& path) const;
  // Removes the copies that no view has. Errors: the directory cannot be listed; a copy cannot be removed.
  Result<void> remove_unused() const;

 private:
  Copies(LedgerDirectory directory, KeyLock lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}
  LedgerDirectory directory_;
  KeyLock lock_;
};

}  // namespace hook
