// The name of JSON, for headers that only name it: json.hpp takes half a second to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace hook {

// Keeps the order of keys, unknown keys and 64-bit integers: what is edited comes out otherwise unchanged.
using Json = nlohmann::ordered_json;

}  // namespace hook
