// A process, safe against the reuse of its number: pid and start time.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "hook/base/presence.hpp"
#include "hook/base/result.hpp"

namespace hook {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks after boot: field 22 of /proc/PID/stat
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Errors: ESRCH, there is no such process; others: it cannot be looked at (/proc is not procfs, no memory, no
// descriptor).
Result<ProcessIdentity> identify(pid_t pid);
// It is this process, or one that started it, or one above that. What cannot be looked at is not.
bool is_above_me(const ProcessIdentity& process);
// Present: the same process still lives. A zombie does not, unless it is only the first thread that ended: a process
// whose other threads go on holds its devices, and could feign death that way. Errors: as identify(), without ESRCH.
Result<Presence> look_at(const ProcessIdentity& process);

}  // namespace hook
