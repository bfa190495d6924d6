// Command lines for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/text.hpp"

namespace test_support {

// Splits at each space: two spaces make an empty word.
inline std::vector<std::string> words(std::string_view line) {
  if (line.empty()) return {};
  const auto parts = fabric::split(line, ' ');
  return {parts.begin(), parts.end()};
}

// Returns arguments like main()'s, which point into `words`.
inline std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  return pointers;
}

}  // namespace test_support
