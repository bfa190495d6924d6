// A limit of locked memory, for people.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace hook {

// "unlimited" for UINT64_MAX, else "N bytes".
inline std::string memlock_text(std::uint64_t bytes) {
  return bytes == UINT64_MAX ? "unlimited" : fmt::format("{} bytes", bytes);
}

}  // namespace hook
