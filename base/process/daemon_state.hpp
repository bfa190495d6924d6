// The state that a long-running program records, for `--probe` of the same program. Each change is one small file, and
// a process at rest writes nothing.
//
// Each process has its own file LEDGER/state/PROGRAM.PID, so that an old and a new instance do not replace each other's
// state. The process keeps its file locked until it ends; the kernel then releases the lock. The lock proves that the
// process lives also to a reader in another PID namespace, where a process ID and a start time would prove nothing.
#pragma once

#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

struct ProbedState {
  bool is_ready = false;
  std::string text = {};  // the reason, in one line: "connected to containerd v2.1.9"
  friend bool operator==(const ProbedState&, const ProbedState&) = default;
};

class DaemonState {
 public:
  // ledger: directory, created with mode 0700 at the first set(). program: "rdma-nri". The log must outlive this
  // object.
  DaemonState(std::string ledger, std::string program, const Log& log)
      : ledger_(std::move(ledger)), program_(std::move(program)), log_(log) {}

  // Records the state if it differs from the recorded one: writes a new file and renames it. A failure is logged once,
  // and the next call tries again.
  void set(ProbedState state);

 private:
  std::string ledger_;
  std::string program_;
  const Log& log_;
  ProbedState recorded_;
  UniqueFd file_;  // open and locked as soon as a state is recorded
  std::string last_message_;
};

// Returns the state of the live processes of the program: a state that is not ready, if a process has recorded one,
// otherwise a ready one. Also returns "not ready", with the reason, if no process has recorded a state, or if a state
// cannot be read. Ignores the file of the calling process, because a process does not see its own lock.
ProbedState probe_daemon(const std::string& ledger, const std::string& program);

// Prints "PROGRAM: ready: TEXT" or "PROGRAM: not ready: TEXT" to stdout. Returns the exit code: 0 ready, 1 not.
int print_probe(const std::string& program, const ProbedState& state);

}  // namespace base
