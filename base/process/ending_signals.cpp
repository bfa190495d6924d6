#include "base/process/ending_signals.hpp"

#include <signal.h>
#include <sys/signalfd.h>

#include <cerrno>

namespace base {

Result<UniqueFd> ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return sys_error(errno, "cannot block signals");
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.ok()) return sys_error(errno, "cannot wait for signals");
  return fd;
}

}  // namespace base
