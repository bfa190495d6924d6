// Owns one file descriptor. Closes it exactly once and never retries close() after EINTR: Linux has released the
// descriptor by then, and a second close could hit a descriptor that another thread has just opened.
// Source: close(2), "Dealing with error returns from close()".
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/base.hpp"

namespace base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  // Returns the descriptor, -1 if there is none.
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  bool operator!() const = delete;  // 0 is a valid descriptor: use ok()

  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

  // Closes the descriptor and owns `fd` from now on. Preserves errno, so that an error path may close before it
  // reports.
  void reset(int fd = -1) {
    const int saved = errno;
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
    errno = saved;
  }

 private:
  int fd_ = -1;
};

}  // namespace base
