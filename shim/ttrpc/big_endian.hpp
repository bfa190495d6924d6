// Numbers of headers: big-endian in multiplexer frames and in ttrpc messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shim {

// The first four bytes, which must be there.
inline std::uint32_t read_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4))
    value = (value << 8) | static_cast<unsigned char>(byte);
  return value;
}

inline void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace shim
