// A process that the calling process forks to work for it.
#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/unique_fd.hpp"

namespace base {

// Makes the kernel send `signal` to this process when its parent ends. Returns false if `parent` ended before, because
// the kernel then sends no signal. A change of the user or of the file-system user clears this setting (prctl(2),
// PR_SET_PDEATHSIG). Makes only system calls, so a child of vfork(2) can call it.
inline bool die_with_parent(pid_t parent, int signal = SIGKILL) {
  ::prctl(PR_SET_PDEATHSIG, signal);
  return ::getppid() == parent;
}

struct Helper {
  pid_t pid = -1;   // -1: the process could not be forked
  UniqueFd socket;  // this process's end of a pair of sockets; none: the pair could not be made
};

// Forks a process that is killed when this process ends, and that calls work(parent, ours, theirs). The call may not
// return. parent: PID of this process. ours, theirs: both ends of the pair of sockets, which work() owns. `ours` is
// this process's end: while the helper has it open too, `theirs` reports no end of the stream. Returns a Helper without
// a PID, and sets errno, if the pair or the process cannot be made. type: SOCK_STREAM or SOCK_SEQPACKET.
Helper start_helper(int type, auto work) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return {};
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    if (die_with_parent(parent)) work(parent, std::move(ours), std::move(theirs));
    ::_exit(1);
  }
  return {child, std::move(ours)};
}

}  // namespace base
