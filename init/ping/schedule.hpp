// Rounds of disjoint pairs. Pure.
//
// In the complete schedule all pairs meet once. In the sparse one each member meets about 2 log2(N) members, so that
// the number of rounds grows with the logarithm of the number of members. It is made for groups of members that follow
// each other, as the ranks below a leaf switch: each group meets every other group. The smallest groups for which the
// rounds suffice have 4 members up to 223 members, 8 up to 1,279, 16 up to 6,655, 32 up to 32,767, then 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace init::ping {

using Pair = std::pair<std::size_t, std::size_t>;  // positions of members, the lower one first

// Returns the number of rounds in which all pairs meet once: count - 1, or count if it is odd; 0 below two.
std::size_t rounds_of(std::size_t count);
// Returns the disjoint pairs of a round: count / 2. round: below rounds_of(count).
std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round);
// Returns the rounds of the sparse schedule: 2 log2(count), rounded up, or rounds_of(count) if these are not more.
std::size_t sparse_rounds_of(std::size_t count);

// The rounds of one test. Two schedules with the same arguments are equal on all machines.
class Schedule {
 public:
  // count: number of members. complete: true: all pairs meet. seed: selects one of many sparse schedules.
  Schedule(std::size_t count, bool complete, std::uint32_t seed);

  std::size_t rounds() const { return rounds_; }
  // Returns the disjoint pairs of a round. No pair meets twice. round: below rounds().
  std::vector<Pair> pairs(std::size_t round) const;
  bool is_complete() const { return group_ == 0; }
  // Returns the members of a group; 0: the schedule is complete. The last group may have fewer.
  std::size_t group() const { return group_; }

 private:
  std::size_t groups() const { return (count_ + group_ - 1) / group_; }
  std::vector<Pair> seats_of(std::size_t round) const;
  void choose_group();
  void draw_distances(std::uint32_t seed);

  std::size_t count_;
  std::size_t rounds_;
  std::size_t group_ = 0;
  std::size_t first_ = 0;               // shifts the rounds of the seats within a group
  std::vector<std::size_t> distances_;  // for each round and each pair of seats: distance of the groups that meet
};

// Pairs each suspect with a member that is known to be good, so that a repeated test shows which end is broken. A good
// member is used once; suspects without a partner get none.
std::vector<Pair> pairs_of_retest(const std::vector<std::size_t>& suspects, const std::vector<std::size_t>& good);

}  // namespace init::ping
