// Runs programs of the node and reads what they print. They run with the node's root as theirs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

struct Answer {
  bool done = false;     // it ended with 0
  std::string text;      // its standard output
  std::string messages;  // its standard error, else its standard output
};

inline constexpr int kPatienceMs = 30'000;
inline constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

// Executes arguments[0], an absolute path, if root alone can change it and the directories and links on the way:
// open_program(). Of a binary the descriptor that was checked is executed; a script is executed by its path, because
// its interpreter, which is checked too, opens it again. variable: NAME=VALUE for it, or empty. Errors: EPERM, the
// caller cannot enter root; EACCES with the remedy, others can change the program; it cannot be started; it writes more
// than kMostAnswer bytes, or runs longer than that: it is killed then.
Result<Answer> ask_program(const std::string& root, const std::vector<std::string>& arguments,
                           const std::string& variable = {}, int patience_ms = kPatienceMs);

// Where a program is in the node: by PATH if the node is this one, then where programs are. nullopt: nowhere.
std::optional<std::string> find_program(const std::string& root, const std::string& name);

}  // namespace hook
