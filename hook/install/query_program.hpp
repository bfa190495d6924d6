// Runs programs of the node, with the node's root as their root, and reads their output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

struct Answer {
  bool done = false;     // the exit status is 0
  std::string text;      // its standard output
  std::string messages;  // standard error; if that is empty, standard output
};

inline constexpr int kPatienceMs = 30'000;
inline constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

// Executes arguments[0], an absolute path, and waits until it exits or patience_ms have passed; then it is killed. Only
// a program that root alone can change is executed: open_program() checks the file, the directories and the links above
// it. For a binary the checked descriptor is executed. A script is executed by its path, because its interpreter opens
// it again; the interpreter is checked too.
// variable: NAME=VALUE that is added to its environment; empty: none.
// Errors: EPERM, the caller cannot enter root; EACCES with the remedy, a user other than root can change the program;
// it cannot be started; EFBIG, it writes more than kMostAnswer bytes; it runs longer than patience_ms.
Result<Answer> query_program(const std::string& root, const std::vector<std::string>& arguments,
                             const std::string& variable = {}, int patience_ms = kPatienceMs);

// Returns the path of a program on the node: from PATH if root is empty, then from the usual directories. Returns
// nullopt if the program is in none of them.
std::optional<std::string> find_program(const std::string& root, const std::string& name);

}  // namespace hook
