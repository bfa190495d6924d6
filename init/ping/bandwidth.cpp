#include <algorithm>
#include <iterator>

#include "init/ping/causes.hpp"

namespace init::ping {

float median_gbps(const Outcome& outcome) {
  std::vector<float> measured;
  std::ranges::copy_if(outcome.gbps, std::back_inserter(measured), [](float gbps) { return gbps > 0; });
  if (measured.empty()) return 0;
  const auto middle = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
  std::ranges::nth_element(measured, middle);
  return *middle;
}

std::vector<SlowPair> find_slow_pairs(const Outcome& outcome) {
  std::vector<SlowPair> slow;
  const float limit = median_gbps(outcome) * kSlow;
  std::size_t cell = 0;
  for (std::size_t second = 1; second < outcome.members.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      for (unsigned rail = 0; rail < outcome.rails && cell < outcome.gbps.size(); ++rail, ++cell) {
        const float gbps = outcome.gbps[cell];
        if (gbps > 0 && gbps < limit) slow.push_back({first, second, rail, gbps});
      }
    }
  }
  return slow;
}

}  // namespace init::ping
