// Identity of a process by pid and start time, safe against the reuse of a pid.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/presence.hpp"
#include "base/result.hpp"

namespace base {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot: field 22 of /proc/PID/stat
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Returns the start time in a text of /proc/PID/stat; nullopt: the text has another format.
std::optional<std::uint64_t> start_time_in(std::string_view stat);
// Reads the identity of a process. Errors: ESRCH, there is no such process; any other errno: it cannot be read (/proc
// is not procfs, no memory, no descriptor).
Result<ProcessIdentity> identify(pid_t pid);
// Returns the identity of this process. Reads it once in each process. Errors: those of identify().
Result<ProcessIdentity> identify_self();
// Returns true if `process` is this process or an ancestor of it. Returns false if a lookup fails.
bool is_above_me(const ProcessIdentity& process);
// Looks up a process. Returns kPresent if it still lives. A zombie counts as gone. But a process whose first thread
// alone has ended is present: its other threads keep devices open. Errors: those of identify(), except ESRCH.
Result<Presence> read_presence(const ProcessIdentity& process);
// Waits at most `time` for the other threads of a process whose first thread has ended: a killed process ends thread by
// thread. Returns true if the process has ended. Returns false at once if its first thread lives or a lookup fails.
bool last_threads_end_within(const ProcessIdentity& process, std::chrono::milliseconds time);

// Describes the members for records (base/json/record.hpp).
void describe(auto& members, ProcessIdentity& process) {
  members("pid", process.pid);
  members("start_time", process.start_time);
}

}  // namespace base
