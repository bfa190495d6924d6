// Locks that only root can take. flock(2) needs no more than a descriptor, so any user that can open a file or
// directory can hold its lock for ever. A lock of root is therefore on a file or directory that only root can open.
//
// Earlier versions lock directories that other users can open. As long as such a program can run, a caller also takes
// the old lock (take_old_lock()), but waits only for a program of this project.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Returns whether only the user of this process can open the file or directory. The group root counts as that user.
bool is_private(const struct stat& status);

// A lock file with mode 0600 that exists only while it is locked, so that no file is left behind. A process that is
// killed leaves the file; the next call locks and removes it.
class LockFile {
 public:
  // Makes and locks the file. Only root may be able to write its directory. patience: longest wait.
  // Errors: EAGAIN, the time is over: the message names a process that holds the lock if one is found; EPERM, other
  // users can open the file; the file cannot be made.
  static Result<LockFile> take(const std::string& path, std::chrono::milliseconds patience);
  LockFile(LockFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::move(other.fd_)) {}
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  LockFile& operator=(LockFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~LockFile();

 private:
  LockFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// The pauses of acquire(): the first one, which is doubled up to the longest.
struct LockPause {
  std::chrono::microseconds first{100};
  std::chrono::microseconds longest{4000};
};
// Repeats attempt(), which returns 0 or an errno, while it returns EAGAIN or EINTR. A blocking flock(2) or fcntl(2) has
// no timeout, and a timer that interrupts it needs a signal handler. Returns 0 or an errno; EAGAIN: the time is over.
int acquire(const std::function<int()>& attempt, std::chrono::milliseconds patience, LockPause pause = {});

// Locks an open file or directory with flock(2). operation: LOCK_EX or LOCK_SH. Returns 0 or an errno; EAGAIN: the time
// is over.
int flock_within(int fd, int operation, std::chrono::milliseconds patience, LockPause pause = {});

// Locks an open file or directory for one process. Returns false if the time is over. Errors: those of flock(2).
Result<bool> lock_within(int fd, std::chrono::milliseconds patience);

// Returns "process 123 (NAME, user 1000)" for a process that has the file open and holds its flock(2) lock, or "an
// unknown process": the process is in another PID namespace, or this process may not read its descriptors. fd: a
// descriptor of the same file.
std::string locking_process(int fd);

// The lock of an earlier version on a directory that other users can open.
struct OldLock {
  bool held = false;    // the caller's descriptor has the lock
  std::string process;  // locking_process() if it is no program of this project; otherwise empty
};
// Takes flock(2) on the directory. Waits at most `patience` for a program of this project that root executes (its name
// begins with "rdma-"), and for a process that is not visible. Any other process is only reported, because it could be
// of any user and must not stop root. Errors: EAGAIN with a remedy, such a program of this project still has the lock;
// errors of flock(2).
Result<OldLock> take_old_lock(int fd, std::string_view path, std::chrono::milliseconds patience);

}  // namespace base
