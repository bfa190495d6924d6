// The parent blocks all signals before the fork and until it exits, and one loop takes them from the queue. So no
// signal is lost between fork and loop, no handler runs, and no default action can end this process.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "base/process/helper.hpp"
#include "base/unique_fd.hpp"
#include "init/exec.hpp"
#include "init/log.hpp"

namespace init {
namespace {

// A signal set in the form of the kernel, used with direct system calls. glibc removes the signals 32 and 33 from every
// set; either of them, sent by any process, would then end this process.
using SignalSet = std::uint64_t;
static_assert(_NSIG == 65, "the kernel's signal set has 64 bits on all architectures but MIPS");

constexpr SignalSet bit(int signal) {
  return SignalSet{1} << (signal - 1);
}

// The set includes the signals of faults. Blocking them is safe on Linux: the kernel unblocks a fault's own signal and
// kills the process (signal.c, force_sig_info_to_task). If they were not blocked, a SIGABRT or SIGSEGV from another
// process would end this process and orphan the child.
constexpr SignalSet kAll = ~SignalSet{0};

SignalSet set_mask(SignalSet mask) {
  SignalSet before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof mask);
  return before;
}

int next_signal() {
  for (;;) {
    const long signal = ::syscall(SYS_rt_sigtimedwait, &kAll, nullptr, nullptr, sizeof kAll);
    if (signal > 0) return static_cast<int>(signal);  // otherwise EINTR, because this process was stopped and continued
  }
}

bool is_pending(int signal) {
  SignalSet pending = 0;
  ::syscall(SYS_rt_sigpending, &pending, sizeof pending);
  return (pending & bit(signal)) != 0;
}

// The controlling terminal, if there is one. SIGTTOU is blocked here with all other signals: tcsetpgrp() from a
// background group would otherwise stop this process.
class Terminal {
 public:
  // /dev/tty is tried first: ENXIO proves that there is no terminal. An image may lack /dev/tty, or may not be allowed
  // to open it. A standard descriptor may then be the terminal.
  Terminal() {
    base::UniqueFd named(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (!named.ok() && errno == ENXIO) return;
    if (named.ok() && ::tcgetpgrp(named.get()) != -1) {
      fd_ = std::move(named);
      return;
    }
    for (int fd = 0; fd <= 2 && !fd_.ok(); ++fd) {
      if (::tcgetpgrp(fd) != -1) fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    }
  }

  int fd() const { return fd_.get(); }
  bool exists() const { return fd_.ok(); }
  bool has_in_foreground(pid_t group) const { return exists() && ::tcgetpgrp(fd()) == group; }

  // Makes group `to` the foreground group of the terminal. Does nothing if `from` is not the foreground group, so a
  // third group never loses the foreground.
  void pass(pid_t from, pid_t to) const {
    if (has_in_foreground(from)) ::tcsetpgrp(fd(), to);
  }

 private:
  base::UniqueFd fd_;
};

// State that the child must restore before its exec.
struct Inherited {
  SignalSet mask = 0;
  struct sigaction on_child {};  // disposition of SIGCHLD, the only one that take_signals() changes
  int parent_death_signal = 0;
};

Inherited take_signals() {
  Inherited inherited;
  inherited.mask = set_mask(kAll);
  // A process that ignores SIGCHLD gets no zombies and therefore no exit codes (wait(2)).
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &inherited.on_child);
  ::prctl(PR_GET_PDEATHSIG, &inherited.parent_death_signal);
  return inherited;
}

// Restores the inherited state in the child. The child of vfork() runs this function, so it may only make system calls.
void prepare_for_exec(const Inherited& inherited, const Terminal& terminal, pid_t parent, pid_t parent_group) {
  ::setpgid(0, 0);
  if (terminal.exists()) terminal.pass(parent_group, ::getpid());
  // A launcher sets a parent-death signal for the command, but fork() clears it, so it is set again.
  const int signal = inherited.parent_death_signal;
  if (signal != 0 && !base::die_with_parent(parent, signal)) ::kill(::getpid(), signal);
  // exec(2) resets every handler to the default and keeps SIG_IGN.
  if (inherited.on_child.sa_handler == SIG_IGN) ::sigaction(SIGCHLD, &inherited.on_child, nullptr);
  set_mask(inherited.mask);
}

// Starts the process of the command. The first attempt uses vfork(), which copies no page tables. Its child shares this
// memory, so it only makes system calls. If execve() refuses the file, that child ends, and a fork() child, which may
// allocate, tries other files and reports the failure. Returns -1 and sets errno if no process could be started.
pid_t start_command(const Inherited& inherited, const Terminal& terminal, char* const argv[], char* const envp[]) {
  const pid_t self = ::getpid();
  const pid_t group = terminal.exists() ? ::getpgrp() : 0;
  const std::string file = find_command(argv, envp);
  const char* const path = file.c_str();
  volatile bool failed = file.empty();
  if (!failed) {
    const pid_t child = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork): see above
    if (child == 0) {
      prepare_for_exec(inherited, terminal, self, group);
      ::execve(path, argv, envp);
      failed = true;
      ::_exit(0);
    }
    if (child > 0 && !failed) return child;
    if (child > 0) {
      TEMP_FAILURE_RETRY(::waitpid(child, nullptr, 0));
      if (terminal.exists()) terminal.pass(child, group);
    }
  }
  const pid_t child = ::fork();
  if (child != 0) return child;
  prepare_for_exec(inherited, terminal, self, group);
  ::_exit(exec_command(argv, envp));
}

// Closes inherited descriptors, so that a pipe ends when the child closes it. Linux before 5.9 has no close_range():
// there the pipe ends only with this process.
void close_inherited_descriptors(int keep) {
  const auto close_range = [](int first, unsigned last) {
    if (static_cast<unsigned>(first) <= last) ::syscall(SYS_close_range, first, last, 0);
  };
  if (keep < 3) return close_range(3, ~0U);
  close_range(3, static_cast<unsigned>(keep) - 1);
  close_range(keep + 1, ~0U);
}

class Reaper {
 public:
  Reaper(pid_t child, const Terminal& terminal) : child_(child), terminal_(terminal) {}

  int run() {
    // Starts as if SIGCHLD had arrived: a child from before this program's exec that ended before signals were blocked
    // sends none.
    for (int signal = SIGCHLD;; signal = next_signal()) {
      if (signal != SIGCHLD) {
        handle(signal);
      } else if (const std::optional<int> status = reap()) {
        if (terminal_.exists()) terminal_.pass(child_, ::getpgrp());
        return WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
      }
    }
  }

 private:
  void handle(int signal) const {
    if (signal == SIGTTIN || signal == SIGTTOU) return;
    // The shell's "fg" moves this group into the foreground and continues it.
    if (signal == SIGCONT) terminal_.pass(::getpgrp(), child_);
    forward(signal);
  }

  // Forwards a signal to the child's group. If the child has moved to another group, its first group may no longer
  // exist. Ignores other failures, mainly EPERM from a set-user-ID child.
  void forward(int signal) const {
    if (::kill(-child_, signal) == -1 && errno == ESRCH) ::kill(child_, signal);
  }

  // Reaps every process that has ended or stopped. Returns the wait status of the child after it has ended.
  std::optional<int> reap() const {
    std::optional<int> ended;
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
      if (pid == 0 || (pid == -1 && errno != EINTR)) return ended;
      if (pid != child_) continue;
      if (WIFSTOPPED(status)) {
        follow_stop(WSTOPSIG(status));
      } else {
        ended = status;
      }
    }
  }

  // Stops this process group after the child has stopped, so that a shell detects the stop. Without a terminal there is
  // no shell: the sender of the stop will continue the child, and no action is needed.
  void follow_stop(int signal) const {
    if (!terminal_.exists() || (signal == SIGSTOP && !is_job_of_parent())) return;
    stop_own_group();
    if (is_pending(SIGCONT)) return;  // a shell has continued this group; the loop forwards its SIGCONT

    // SIGTSTP did not stop this process: its process group is orphaned, or it is PID 1, so no shell could continue it.
    // A shell could not continue the child either, so the child is continued here. A child that stopped for terminal
    // access (SIGTTIN, SIGTTOU) would stop again unless it has the terminal now.
    terminal_.pass(::getpgrp(), child_);
    if (signal == SIGTSTP || terminal_.has_in_foreground(child_)) forward(SIGCONT);
  }

  // Stops this process group as Ctrl-Z would: the other processes of the pipeline at once, and this process as soon as
  // SIGTSTP is unblocked. The kernel ignores the stop if no shell could continue the group: in an orphaned process
  // group, or as PID 1.
  static void stop_own_group() {
    ::kill(0, SIGTSTP);
    set_mask(kAll & ~bit(SIGTSTP));
    set_mask(kAll);
  }

  // Returns true if the parent, such as a shell, runs this process as a separate job, and so waits for its stops.
  static bool is_job_of_parent() {
    const pid_t parent = ::getppid();
    return ::getsid(parent) == ::getsid(0) && ::getpgid(parent) != ::getpgrp();
  }

  const pid_t child_;
  const Terminal& terminal_;
};

}  // namespace

bool stops_for_parent(char* const argv[]) {
  while (argv[1])
    ++argv;
  return std::strstr(argv[0], "kill -STOP $$") != nullptr;
}

int run_reaping(char* const argv[], char* const envp[]) {
  const Inherited inherited = take_signals();
  const Terminal terminal;
  if (::getpid() != 1) ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  const pid_t child = start_command(inherited, terminal, argv, envp);
  if (child == -1) {
    write_message(
        fmt::format("rdma-init: error: start a process for `{}`: {}; raise the limit of processes "
                    "(pids.max of the cgroup, ulimit -u)",
                    argv[0], std::strerror(errno)));
    return 125;
  }

  // Parent and child both call setpgid(): the group must exist before the first signal is forwarded.
  ::setpgid(child, child);
  close_inherited_descriptors(terminal.fd());
  return Reaper(child, terminal).run();
}

}  // namespace init
