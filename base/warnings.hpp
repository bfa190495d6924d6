// Functions for lists of warnings.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/base.hpp"

namespace base {

// Appends the warnings.
inline void append(std::vector<std::string> more, std::vector<std::string>& warnings) {
  std::ranges::move(more, std::back_inserter(warnings));
}

// Appends the warning, unless the list has it.
inline void add_once(std::string warning, std::vector<std::string>& warnings) {
  if (std::ranges::find(warnings, warning) == warnings.end()) warnings.push_back(std::move(warning));
}

// Appends the warnings that the list does not have.
inline void append_once(std::vector<std::string> more, std::vector<std::string>& warnings) {
  for (std::string& warning : more)
    add_once(std::move(warning), warnings);
}

}  // namespace base
