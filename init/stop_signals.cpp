#include "init/stop_signals.hpp"

#include <time.h>

namespace init {

StopSignals::StopSignals() {
  sigemptyset(&watched_);
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&watched_, signal);
  }
  sigprocmask(SIG_BLOCK, &watched_, &former_);
  // What was blocked at start is the trainer's to receive.
  for (const int signal : {SIGTERM, SIGINT}) {
    if (sigismember(&former_, signal) == 1) sigdelset(&watched_, signal);
  }
}

StopSignals::~StopSignals() {
  sigprocmask(SIG_SETMASK, &former_, nullptr);
}

std::optional<int> StopSignals::sleep_ms(long milliseconds) const {
  const timespec span{milliseconds / 1000, milliseconds % 1000 * 1000000};
  const int signal = sigtimedwait(&watched_, nullptr, &span);
  return signal > 0 ? std::optional(signal) : std::nullopt;
}

}  // namespace init
