// The number of a character device.
#pragma once

#include <cstdint>

namespace hook {

struct DeviceNumber {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

}  // namespace hook
