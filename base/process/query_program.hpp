// Executes programs of the node, with the node's root directory as root directory, and reads their output. Only for
// processes with one thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace base {

struct Answer {
  bool done = false;     // whether the exit status is 0
  std::string text;      // the standard output
  std::string messages;  // the standard error or, if that is empty, the standard output
};

inline constexpr int kPatienceMs = 30'000;
inline constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

// Executes arguments[0], an absolute path, and waits until it exits. Kills it after patience_ms. Refuses a program that
// a user other than root can change: open_program() checks the file, and the directories and links above it. A binary
// is executed by the checked descriptor. A script is executed by its path, because its interpreter opens it again by
// that path; the interpreter is checked like a program.
// variable: NAME=VALUE that is added to the program's environment; empty: none.
// Errors: EPERM, the caller cannot enter root; EACCES with the remedy, a user other than root can change the program;
// the program cannot be started; EFBIG, the program writes more than kMostAnswer bytes; the program runs longer than
// patience_ms.
Result<Answer> query_program(const std::string& root, const std::vector<std::string>& arguments,
                             const std::string& variable = {}, int patience_ms = kPatienceMs);

}  // namespace base
