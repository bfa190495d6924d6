#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/base.hpp"

namespace base {

// Returns true for 1 to `longest` characters of [A-Za-z0-9_.-] that are neither "." nor "..".
inline bool is_file_name(std::string_view name, std::size_t longest) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  return !name.empty() && name.size() <= longest && name != "." && name != ".." && std::ranges::all_of(name, allowed);
}

}  // namespace base
