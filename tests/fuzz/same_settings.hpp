// What two readers of one file of settings have to agree on.
#pragma once

#include <algorithm>

#include "init/settings.hpp"

namespace fuzz {

// Names, values and sources. had_cr is of the line, and a reader by lines does not keep it.
inline bool same_settings(const init::Settings& left, const init::Settings& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.value == b.second.value && a.second.source == b.second.source;
  });
}

}  // namespace fuzz
