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

// Writes one line to stderr; the newline is added. A closed or broken stderr is no error and raises no SIGPIPE: a
// log reader that went away must not keep the command from starting.
void write_message(std::string_view line);

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

}  // namespace init
