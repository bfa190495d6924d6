// Declares Json for headers that only name it: json.hpp takes half a second to compile.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "base/base.hpp"

namespace base {

// This type keeps the order of keys, unknown keys and 64-bit integers. So editing one value leaves the remaining
// document unchanged.
using Json = nlohmann::ordered_json;

// The limits of parse_json().
struct JsonLimits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t depth = 64;
  std::size_t values = std::size_t{1} << 18;  // limit of the values; each takes a few hundred bytes of memory
};

}  // namespace base
