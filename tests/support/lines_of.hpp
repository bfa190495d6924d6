// Findings as the lines of a log.
#pragma once

#include <string>
#include <vector>

#include "init/check.hpp"

namespace test_support {

inline std::vector<std::string> lines_of(const std::vector<init::Check>& checks) {
  std::vector<std::string> lines;
  for (const init::Check& check : checks)
    lines.push_back(line_of(check));
  return lines;
}

}  // namespace test_support
