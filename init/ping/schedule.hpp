// Rounds of disjoint pairs. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace init::ping {

using Pair = std::pair<std::size_t, std::size_t>;  // positions of members, the lower one first

// Returns the number of rounds in which all pairs meet once: count - 1, or count if it is odd; 0 below two.
std::size_t rounds_of(std::size_t count);
// Returns the disjoint pairs of a round: count / 2. round: below rounds_of(count).
std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round);
// Pairs each suspect with a member that is known to be good, so that a repeated test shows which end is broken. A good
// member is used once; suspects without a partner get none.
std::vector<Pair> pairs_of_retest(const std::vector<std::size_t>& suspects, const std::vector<std::size_t>& good);

}  // namespace init::ping
