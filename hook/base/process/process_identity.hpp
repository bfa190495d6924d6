// A process, safe against the reuse of its number: pid and start time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hook {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks after boot: field 22 of /proc/PID/stat
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// nullopt: there is no such process, or /proc is not procfs.
std::optional<ProcessIdentity> identify(pid_t pid);
// The same process still lives. A zombie does not, unless it is only the first thread that ended: a process whose other
// threads go on holds its devices, and could feign death that way.
bool is_alive(const ProcessIdentity& process);

}  // namespace hook
