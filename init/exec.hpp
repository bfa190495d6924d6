// The step from rdma-init into the command: the command's environment and limits, the exec itself, and the words for
// its failures. Nothing here allocates in proportion to the environment's bytes, which may be megabytes.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace init {

// An environment for exec: the strings of another one, by pointer, with some variables replaced, added or removed.
// The other environment must outlive it and stay as it is.
class Environment {
 public:
  explicit Environment(char* const environment[]);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Every former entry of that name goes: getenv() takes the first of several, some shells the last.
  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);

  // Null-terminated; valid until the next change.
  char* const* envp() const { return entries_.data(); }

 private:
  std::vector<char*> entries_;       // always ends with the null pointer
  std::deque<std::string> strings_;  // the strings of set(): a deque never moves them
};

// Occupies those of the descriptors 0, 1 and 2 that were closed at start with a descriptor that can be neither read
// nor written. Without it the first device or socket opened here would become "stderr" and receive a message.
// Close-on-exec, so that the command finds them closed, as they came. To be called before anything is opened.
void guard_standard_descriptors();

// Raises the soft RLIMIT_MEMLOCK to the hard one: what the command may pin for ibv_reg_mr. Failure is left to doctor.
void raise_memlock();

// The file that exec_command() would try first; empty: there is none. Nothing is executed.
std::string find_command(char* const argv[], char* const envp[]);

// Replaces this process by argv[0], found as a shell finds it with the PATH of envp; a text file without "#!" is run
// by /bin/sh. Descriptors, signal mask and dispositions are passed on untouched.
//
// Returns only on failure, after one line on stderr that names the file, the cause and the remedy: 127 if there is no
// such command, 126 if it was found and cannot be executed.
int exec_command(char* const argv[], char* const envp[]);

// Runs the command as a child and stays behind as its init: the --reap mode of rdma-init.
//
// Spawns argv[0] (PATH lookup, environment envp) in a process group of its own and stays until it ends. The child
// starts with the signal mask, dispositions and parent-death signal that this process was started with.
//
// Signals: every signal that can be caught goes on to the child's group, also SIGSEGV and the like when another process
// sends them. SIGKILL and SIGSTOP cannot be caught. SIGTTIN and SIGTTOU concern our own group only.
//
// Terminal: if our group has the foreground of the controlling terminal, the child's group gets it, so that Ctrl-C and
// window sizes reach the child once and directly; it is taken back when the child ends. If the child is stopped under
// an interactive shell, our group stops too, so that the shell gets its terminal back; "fg" and "bg" continue both.
// Where there is no such shell, as in a container, Ctrl-Z has no effect, as it has none on a container's PID 1.
//
// Orphans: as PID 1, or else as a child subreaper, this process reaps every descendant. When the child has ended, it
// does not wait for the others: under PID 1 the kernel kills them with the PID namespace; otherwise they live on and
// the next subreaper or init inherits them, as with any command that leaves background processes.
//
// Nothing that happens after the spawn, short of SIGKILL, ends this process before the child. Inherited descriptors
// above stderr are closed in this process once the child has them, so that pipes end when the child closes them.
//
// Returns the exit code to leave with: the child's own, 128+n if signal n ended it, 126 or 127 if it could not be
// executed (as exec_command says it), 125 if no process could be created; messages go to stderr.
int run_reaping(char* const argv[], char* const envp[]);

}  // namespace init
