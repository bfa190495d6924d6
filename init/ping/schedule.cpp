#include "init/ping/schedule.hpp"

#include <algorithm>

namespace init::ping {

std::size_t rounds_of(std::size_t count) {
  if (count < 2) return 0;
  return count % 2 == 0 ? count - 1 : count;
}

// The circle method: one position is fixed, and all other positions move around it. With an odd count, the fixed
// position is empty, and its partner rests.
std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round) {
  const std::size_t turning = rounds_of(count);
  std::vector<Pair> pairs;
  if (turning == 0) return pairs;
  const auto add = [&](std::size_t one, std::size_t other) {
    pairs.emplace_back(std::min(one, other), std::max(one, other));
  };
  if (count % 2 == 0) add(round % turning, count - 1);
  for (std::size_t step = 1; step <= (turning - 1) / 2; ++step)
    add((round + step) % turning, (round + turning - step) % turning);
  return pairs;
}

std::vector<Pair> pairs_of_retest(const std::vector<std::size_t>& suspects, const std::vector<std::size_t>& good) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < std::min(suspects.size(), good.size()); ++i)
    pairs.emplace_back(std::min(suspects[i], good[i]), std::max(suspects[i], good[i]));
  return pairs;
}

}  // namespace init::ping
