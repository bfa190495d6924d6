#include "init/ping/schedule.hpp"

#include <algorithm>
#include <bit>
#include <set>

namespace init::ping {
namespace {

constexpr std::size_t kLeastGroup = 4;

// Random numbers that are equal on all machines, unlike those of std::shuffle() (splitmix64).
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t end) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t word = state_;
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9U;
    word = (word ^ word >> 27) * 0x94D049BB133111EBU;
    return (word ^ word >> 31) % end;
  }
  void shuffle(std::vector<std::size_t>& values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

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

std::size_t sparse_rounds_of(std::size_t count) {
  if (count < 2) return 0;
  return std::min(rounds_of(count), 2 * static_cast<std::size_t>(std::bit_width(count - 1)));
}

Schedule::Schedule(std::size_t count, bool complete, std::uint32_t seed)
    : count_(count), rounds_(complete ? rounds_of(count) : sparse_rounds_of(count)) {
  if (rounds_ == rounds_of(count)) return;
  choose_group();
  draw_distances(seed);
}

// In a round, each pair of seats of a group meets at one distance: seat S of group G meets seat T of group G +
// distance. A distance and its negative bring the same groups together, so that half of all distances suffice.
void Schedule::choose_group() {
  for (group_ = kLeastGroup; rounds_ * group_ / 2 < groups() / 2 + 1;)
    group_ *= 2;
}

// Draws the distances of all pairs of seats: first each distance once, from 0 to half of the number of groups, in one
// of the two directions, and then the opposite directions. Two seats have no distance twice, so no pair meets twice.
void Schedule::draw_distances(std::uint32_t seed) {
  Draw draw(seed);
  std::vector<std::size_t> once(groups() / 2 + 1);
  for (std::size_t i = 0; i < once.size(); ++i)
    once[i] = i;
  draw.shuffle(once);
  std::vector<std::size_t> opposite;
  for (std::size_t& distance : once) {
    const std::size_t other = (groups() - distance) % groups();
    if (other != distance) opposite.push_back(other);
    if (other != distance && draw.below(2) == 1) std::swap(distance, opposite.back());
  }
  draw.shuffle(opposite);
  once.insert(once.end(), opposite.begin(), opposite.end());
  first_ = draw.below(rounds_of(group_));
  std::set<std::pair<Pair, std::size_t>> used;
  for (std::size_t round = 0; round < rounds_; ++round) {
    for (const Pair& seats : seats_of(round)) {
      auto next = once.begin();
      while (!used.emplace(seats, *next).second)
        ++next;
      distances_.push_back(*next);
      std::rotate(next, next + 1, once.end());
    }
  }
}

std::vector<Pair> Schedule::seats_of(std::size_t round) const {
  return pairs_of_round(group_, (first_ + round) % rounds_of(group_));
}

std::vector<Pair> Schedule::pairs(std::size_t round) const {
  if (is_complete()) return pairs_of_round(count_, round);
  std::vector<Pair> pairs;
  pairs.reserve(count_ / 2);
  auto distance = distances_.begin() + static_cast<std::ptrdiff_t>(round * group_ / 2);
  for (const auto& [seat, other_seat] : seats_of(round)) {
    for (std::size_t group = 0; group < groups(); ++group) {
      const std::size_t one = group * group_ + seat;
      const std::size_t other = (group + *distance) % groups() * group_ + other_seat;
      // The last group may have fewer members, and the partner of a seat without a member rests.
      if (one < count_ && other < count_) pairs.emplace_back(std::min(one, other), std::max(one, other));
    }
    ++distance;
  }
  return pairs;
}

std::vector<Pair> pairs_of_retest(const std::vector<std::size_t>& suspects, const std::vector<std::size_t>& good) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < std::min(suspects.size(), good.size()); ++i)
    pairs.emplace_back(std::min(suspects[i], good[i]), std::max(suspects[i], good[i]));
  return pairs;
}

}  // namespace init::ping
