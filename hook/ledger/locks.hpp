// Locks on HCAs and on keys of grants.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"
#include "hook/ledger/files.hpp"

namespace hook {

inline constexpr int kKeyLockTimeoutMs = 10000;

// flock on DIR/hca/DEVICE/lock. A child made by fork() shares it. Errors: as check_hca_name(), open_directory(); EAGAIN
// names the holder, for people only: everything may have changed since.
Result<fabric::UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, int timeout_ms);

// Locks on keys of grants: one byte each of DIR/lock, at an offset that the key gives, so that there are no lock files
// to clean up. Two keys may share a byte: they then wait for each other, no more. A caller takes all its keys at once,
// in the order of their bytes, and asks for no other while it holds one: no two callers can wait for each other.
class KeyLock {
 public:
  static Result<KeyLock> take(const LedgerFiles& files, const std::vector<std::string>& keys,
                              int timeout_ms = kKeyLockTimeoutMs);

 private:
  explicit KeyLock(fabric::UniqueFd fd) : fd_(std::move(fd)) {}
  fabric::UniqueFd fd_;  // its description holds the locks
};

}  // namespace hook
