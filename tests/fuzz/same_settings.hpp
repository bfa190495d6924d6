// A second reader of settings files, and the comparison of its result with the product's.
#pragma once

#include <algorithm>
#include <sstream>

#include "init/settings.hpp"

namespace fuzz {

// Compares names, values and sources, but not had_cr, which this reader does not set.
inline bool same_settings(const init::Settings& left, const init::Settings& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.value == b.second.value && a.second.source == b.second.source;
  });
}

// Adds the lines NAME=value of a text to settings, if `is_taken` accepts the line and its name. The first line of a
// variable counts.
template <typename IsTaken>
init::Settings read_by_lines(const std::string& text, const std::string& path, init::Settings settings,
                             const IsTaken& is_taken) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    if (is_taken(line, name)) settings.insert({name, {line.substr(equals + 1), path}});
  }
  return settings;
}

}  // namespace fuzz
