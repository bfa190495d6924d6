// The durations of the steps of one call, for its log line and the metrics.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base.hpp"

namespace base {

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

// Returns the seconds of the monotonic clock.
inline double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Timing {
 public:
  Timing() : last_(std::chrono::steady_clock::now()), begin_(last_) {}
  // Adds the time since the previous call to the step `name`. A step may occur more than once.
  void step(std::string_view name) {
    const auto now = std::chrono::steady_clock::now();
    add(name, std::chrono::duration_cast<std::chrono::microseconds>(now - last_));
    last_ = now;
  }
  // Splits the time since the previous call: adds `part_us` to the step `part`, and the remaining time to the step
  // `name`.
  void step(std::string_view name, std::string_view part, std::uint64_t part_us) {
    const std::chrono::microseconds of_part(part_us);
    last_ += of_part;
    step(name);
    add(part, of_part);
  }
  const std::vector<std::pair<std::string, std::uint64_t>>& steps() const {
    return steps_;
  }  // the steps with their durations in microseconds
  std::uint64_t total() const {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  }

 private:
  void add(std::string_view name, std::chrono::microseconds time) {
    const auto microseconds = static_cast<std::uint64_t>(time.count());
    for (auto& [step, sum] : steps_) {
      if (step != name) continue;
      sum += microseconds;
      return;
    }
    steps_.emplace_back(name, microseconds);
  }
  std::chrono::steady_clock::time_point last_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<std::pair<std::string, std::uint64_t>> steps_;
};

}  // namespace base
