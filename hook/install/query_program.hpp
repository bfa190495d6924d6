// Executes programs of the node with the node's root as their root, and reads their output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

struct Answer {
  bool done = false;     // whether the exit status is 0
  std::string text;      // the standard output
  std::string messages;  // the standard error; if that is empty, the standard output
};

inline constexpr int kPatienceMs = 30'000;
inline constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

// Executes arguments[0], an absolute path, and waits until it exits. Kills it after patience_ms. Executes only a
// program that root alone can change: open_program() checks the file, and the directories and links above it. For a
// binary, the checked descriptor is executed. A script is executed by its path, because its interpreter opens it again;
// the interpreter is checked too.
// variable: NAME=VALUE that is added to the program's environment; empty: none.
// Errors: EPERM, the caller cannot enter root; EACCES with the remedy, a user other than root can change the program;
// it cannot be started; EFBIG, it writes more than kMostAnswer bytes; it runs longer than patience_ms.
Result<Answer> query_program(const std::string& root, const std::vector<std::string>& arguments,
                             const std::string& variable = {}, int patience_ms = kPatienceMs);

// Returns the path of a program on the node; nullopt if it is not found. Searches PATH if root is empty, then the usual
// directories.
std::optional<std::string> find_program(const std::string& root, const std::string& name);

}  // namespace hook
