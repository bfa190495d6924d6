// Locks on HCAs and on keys of grants. A lock excludes other processes, and other threads of this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/files.hpp"

namespace hook {

// The time in which a call waits for all its HCAs together.
struct LockTime {
  // wait: milliseconds from now; 0: do not wait.
  explicit LockTime(int wait) : ms(wait), until(base::from_now(std::chrono::milliseconds(wait))) {}
  int ms;
  base::Deadline until;
};

// Takes flock(2) on DIR/hca/DEVICE/lock. Returns the descriptor that holds the lock. A child made by fork() shares the
// lock. Errors: those of check_hca_name() and open_directory(); EAGAIN, the lock is not free in time. The
// message of EAGAIN names the process that holds the lock. The name is only for the reader of the message: the process
// may have ended meanwhile. is_named: writes process and container into the file, for this message. One file of a call
// is enough: a process that waits for another one finds it there. names_process: false: the message names no process,
// because the search reads the descriptors of all processes of the node.
Result<base::UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, const LockTime& time,
                                bool is_named = true, bool names_process = true);

// Locks on keys of grants. Each key is one byte of DIR/lock, at an offset computed from the key, so that no lock file
// remains. If two keys share a byte, their callers only wait for each other. A caller takes all its keys in one call,
// in the order of their bytes, and takes no other lock while it holds one. So no two callers can wait for each other
// forever.
//
// All locks of one LedgerFiles belong to one open file description, so they do not exclude each other: one object is
// for one thread. A child made by fork() gets another description with its first lock.
class KeyLock {
 public:
  // Locks these keys. timeout_ms: longest wait for one key; kUsualWait: that of `files`. files: must outlive the lock.
  // Errors: EAGAIN, a lock is not free in time.
  static Result<KeyLock> take(const LedgerFiles& files, const std::vector<std::string>& keys,
                              int timeout_ms = kUsualWait);
  KeyLock(KeyLock&& other) noexcept : fd_(other.fd_), offsets_(std::exchange(other.offsets_, {})) {}
  KeyLock& operator=(KeyLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    offsets_.swap(other.offsets_);
    return *this;
  }
  ~KeyLock();

 private:
  explicit KeyLock(int fd) : fd_(fd) {}
  int fd_;  // descriptor of DIR/lock
  std::vector<off_t> offsets_;
};

}  // namespace hook
