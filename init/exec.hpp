// Starts the command: its environment and limits, the exec itself, and messages for failures. The memory of these
// functions does not grow with the bytes of the environment, which may have megabytes.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace init {

// An environment for exec(): pointers to the strings of another environment, with variables replaced, added or removed.
// The other environment must outlive it and must not change.
class Environment {
 public:
  explicit Environment(char* const environment[]);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Removes every entry with that name and adds one: getenv() reads the first of several entries, some shells the last.
  void set(std::string_view name, std::string_view value);

  // Returns the null-terminated array, valid until the next change.
  char* const* envp() const { return entries_.data(); }

 private:
  std::vector<char*> entries_;       // the last element is always the null pointer
  std::deque<std::string> strings_;  // strings of set(); a deque does not move them, so pointers stay valid
};

// Opens each of the descriptors 0, 1 and 2 that was closed at start, with O_PATH and close-on-exec. If one stayed
// closed, the first opened device or socket would become "stderr" and receive a message. The command finds these
// descriptors closed again. Call it before any other open.
void guard_standard_descriptors();

// Raises the soft RLIMIT_MEMLOCK, which bounds ibv_reg_mr(), to the hard limit. doctor reports a limit that is too low.
void raise_memlock();

// Returns the file that exec_command() would try first, empty if there is none. Executes nothing.
std::string find_command(char* const argv[], char* const envp[]);

// Replaces this process with argv[0]. The lookup follows the PATH of envp as a shell does. /bin/sh runs a text file
// without "#!". Descriptors, signal mask and dispositions are inherited unchanged.
//
// Returns only on failure, after one line on stderr with the file, the cause and the remedy. Returns 127 if there is no
// such command, 126 if it cannot be executed.
int exec_command(char* const argv[], char* const envp[]);

// Runs the command as a child and acts as its init: the --reap mode of rdma-init.
//
// Starts argv[0] (PATH lookup, environment envp) in its own process group and waits until it ends. The child starts
// with the signal mask, dispositions and parent-death signal that this process inherited.
//
// Signals: every signal that can be caught is forwarded to the child's group, including SIGSEGV and similar signals
// from another process. SIGKILL and SIGSTOP cannot be caught. SIGTTIN and SIGTTOU concern this process group only.
//
// Terminal: if this group is in the foreground of the controlling terminal, the child's group gets the foreground.
// Ctrl-C and window sizes then reach the child once and directly. When the child ends, this group gets the foreground
// again. If the child stops under an interactive shell, this group stops too, so that the shell gets its terminal; "fg"
// and "bg" continue both groups. Without such a shell, as in a container, Ctrl-Z has no effect, as on a container's
// PID 1.
//
// Orphans: as PID 1, or as a child subreaper, this process reaps every orphaned descendant. When the child has ended,
// this process does not wait for the remaining descendants. The kernel kills them with the PID namespace if this
// process is PID 1. Otherwise the next subreaper or init inherits them, as with any command that leaves background
// processes.
//
// No event after the start of the child, except SIGKILL, ends this process before the child. This process closes
// inherited descriptors above stderr after the child has them, so that a pipe ends when the child closes it.
//
// Returns the exit code: the child's own, 128+n if signal n ended it, 126 or 127 as exec_command(), 125 if no process
// could be created. Messages are written to stderr.
int run_reaping(char* const argv[], char* const envp[]);

// Returns true if the command is to stop itself for the parent of this process. pyxis (0.24) calls an entrypoint with
// `sh -c "kill -STOP $$ ; exit 0"`, waits until its own child has stopped, and takes the variables of that child. So
// the command must replace this process: if it were a child, only the child would stop.
bool stops_for_parent(char* const argv[]);

}  // namespace init
