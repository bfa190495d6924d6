// A second reader of files of settings, and what two of them have to agree on.
#pragma once

#include <algorithm>
#include <sstream>

#include "init/settings.hpp"

namespace fuzz {

// Names, values and sources. had_cr is of the line, and a reader by lines does not keep it.
inline bool same_settings(const init::Settings& left, const init::Settings& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.value == b.second.value && a.second.source == b.second.source;
  });
}

// What the lines NAME=value of a text add to settings, the first one of a variable, where `is_taken` says so of the
// line and its name.
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
