// Opens and executes a program that only root can have placed there, and reads its output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Opens a program for execute_program(), so that the checked file is the executed one. Requires that root or the
// caller's user owns the file and each directory and link on the way, and that no other user can write to them. A
// sticky directory may be writable: other users cannot replace root's files there. path: absolute. root: directory that
// the path, its links and its ".." cannot leave, as with chroot(2); "": no such directory. Errors: ENOENT; EACCES, the
// file is not regular, or another user can change it or a directory or link on the way; any other errno of open(2).
Result<UniqueFd> open_program(std::string_view path, const std::string& root = {});

// Checks that only root can change the directory, and each directory on the way to it. A missing directory is no error.
// Errors: those of open_program().
Result<void> check_program_directory(std::string_view directory, const std::string& root);

// Returns pointers to the texts and nullptr behind them, as execve(2) wants arguments and variables.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

// Executes a program of open_program() in place of this process. A binary is executed by the descriptor. A script is
// executed by its path, because its interpreter opens it again. argv[0]: the path. Returns only if the program cannot
// be executed, and sets errno.
void execute_program(const UniqueFd& program, char* const argv[], char* const envp[]);

struct Pipe {
  UniqueFd in;   // the reading end; does not block, because a wait for output could pass a deadline
  UniqueFd out;  // the writing end; while a process has it open, `in` does not report the end of the output
};
// Returns a Pipe without descriptors, and sets errno, if the pipe cannot be made.
Pipe make_pipe();

// Output of a program that runs.
struct ProgramOutput {
  UniqueFd fd;  // the reading end of its pipe; none: the output has ended
  std::string text;

  // Reads once. Returns false if no data is there now. Keeps the first `keep` bytes of the output and discards later
  // data, so that the program never blocks. Only for processes with one thread.
  bool read_some(std::size_t keep);
};

}  // namespace base
