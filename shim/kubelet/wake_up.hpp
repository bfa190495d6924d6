// Lets other threads end poll(2) in the main thread.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace shim {

// Other threads call the function from call(). That function shares ownership of the descriptor, because it may be
// called after the destructor of WakeUp.
class WakeUp {
 public:
  static Result<WakeUp> make() {
    WakeUp wake;
    wake.fd_ = std::make_shared<base::UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.fd_->ok()) return base::sys_error(errno, "cannot make an eventfd");
    return wake;
  }
  int fd() const { return fd_->get(); }
  std::function<void()> call() const {
    return [fd = fd_] { (void)::eventfd_write(fd->get(), 1); };
  }
  void take() const {
    eventfd_t count = 0;
    (void)::eventfd_read(fd_->get(), &count);
  }

 private:
  std::shared_ptr<base::UniqueFd> fd_;
};

}  // namespace shim
