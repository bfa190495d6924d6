#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hook {

// Point in time at which waiting stops. A past deadline, such as Deadline(), means: do not wait.
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline from_now(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Returns the milliseconds until the deadline: at least 0, at most `most`.
inline int ms_until(Deadline deadline, int most) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most));
}

}  // namespace hook
