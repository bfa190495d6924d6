// Locks on HCAs and on keys of grants. A lock excludes other processes, and other threads of this process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/files.hpp"

namespace hook {

inline constexpr int kKeyLockTimeoutMs = 10000;

// Takes flock(2) on DIR/hca/DEVICE/lock. Returns the descriptor that holds the lock. A child made by fork() shares the
// lock. Errors: those of check_hca_name() and open_directory(); EAGAIN, the lock is not free within timeout_ms. The
// message of EAGAIN names the process that holds the lock. The name is only for the reader of the message: the process
// may have ended meanwhile.
Result<base::UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, int timeout_ms);

// Locks on keys of grants. Each key is one byte of DIR/lock, at an offset computed from the key, so that no lock file
// remains. If two keys share a byte, their callers only wait for each other. A caller takes all its keys in one call,
// in the order of their bytes, and takes no other lock while it holds one. So no two callers can wait for each other
// forever.
class KeyLock {
 public:
  // Locks these keys. timeout_ms: longest wait for one key. Errors: EAGAIN, a lock is not free in time.
  static Result<KeyLock> take(const LedgerFiles& files, const std::vector<std::string>& keys,
                              int timeout_ms = kKeyLockTimeoutMs);

 private:
  explicit KeyLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  base::UniqueFd fd_;  // the open file description that holds the locks
};

}  // namespace hook
