// Noticing SIGTERM and SIGINT while waiting. As PID 1 of a container the kernel drops both as long as there is no
// handler (signal(7), pid_namespaces(7)), so that stopping a container that waits would take the engine's whole grace
// period.
#pragma once

#include <signal.h>

#include <optional>

namespace init {

// Blocks the signals for its lifetime, and restores the mask as it was: the trainer inherits it.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Sleeps; the signal that ended the sleep, if one did. Signals that came ignored stay ignored.
  std::optional<int> sleep_ms(long milliseconds) const;

 private:
  sigset_t watched_{};
  sigset_t former_{};
};

}  // namespace init
