// Command lines for tests.
#pragma once

#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace test_support {

// Splits at each space: two spaces make an empty word.
inline std::vector<std::string> words(std::string_view line) {
  if (line.empty()) return {};
  const auto parts = base::split(line, ' ');
  return {parts.begin(), parts.end()};
}

// Returns arguments like main()'s, which point into `words`.
inline std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  return pointers;
}

// Returns the ends of the names with the prefix in a man page's lists of variables (".It Ev NAME , NAME"), without
// patterns.
inline std::set<std::string, std::less<>> variables_of_man_page(const char* path, std::string_view prefix) {
  std::set<std::string, std::less<>> names;
  std::ifstream page(path);
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(".It Ev ")) continue;
    for (std::string& word : words(line))
      if (word.starts_with(prefix) && !word.ends_with('*')) names.insert(word.substr(prefix.size()));
  }
  return names;
}

}  // namespace test_support
