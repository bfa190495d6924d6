// Command lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/text.hpp"

namespace test_support {

// Words are separated by one space; two make an empty one.
inline std::vector<std::string> words(std::string_view line) {
  if (line.empty()) return {};
  const auto parts = fabric::split(line, ' ');
  return {parts.begin(), parts.end()};
}

// As main() gets them; they point into `words`.
inline std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  return pointers;
}

}  // namespace test_support
