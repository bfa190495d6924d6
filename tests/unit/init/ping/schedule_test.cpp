#include "init/ping/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "unit/sanitized.hpp"

namespace init::ping {
namespace {

constexpr std::size_t kMostMembers = 1024;

// Collects the rounds of one number of members and names the first broken rule. This file is not optimized and all
// numbers of members have 179 million pairs: the loop has no calls per pair.
class Meetings {
 public:
  explicit Meetings(std::size_t count) : count_(count), met_(count * count), busy_in_(count) {}

  // Returns an empty text if the pairs are disjoint, ordered, members of the job and new.
  std::string add_round(const std::vector<Pair>& pairs) {
    ++rounds_;
    if (pairs.size() != count_ / 2) return "a round has " + std::to_string(pairs.size()) + " pairs";
    const Pair* pair = pairs.data();
    for (const Pair* const end = pair + pairs.size(); pair != end; ++pair) {
      const std::size_t first = pair->first;
      const std::size_t second = pair->second;
      if (first >= second || second >= count_) return broken(*pair, "is not a pair of members, the lower one first");
      if (busy_[first] == rounds_ || busy_[second] == rounds_) return broken(*pair, "has a member that is busy");
      busy_[first] = busy_[second] = rounds_;
      if (seen_[first * count_ + second] != 0) return broken(*pair, "met in an earlier round");
      seen_[first * count_ + second] = 1;
    }
    pairs_ += pairs.size();
    return {};
  }

  // Pairs that met. No pair meets twice, so a count of all pairs means that each pair met.
  std::size_t pairs() const { return pairs_; }

 private:
  std::string broken(const Pair& pair, const std::string& rule) const {
    return std::to_string(pair.first) + "-" + std::to_string(pair.second) + " of round " + std::to_string(rounds_) +
           " " + rule;
  }

  std::size_t count_;
  std::vector<std::uint8_t> met_;
  std::vector<std::size_t> busy_in_;  // the last round of each member, from 1
  std::uint8_t* seen_ = met_.data();
  std::size_t* busy_ = busy_in_.data();
  std::size_t rounds_ = 0;
  std::size_t pairs_ = 0;
};

// Returns the broken rule of the schedule of count members, empty if there is none.
std::string broken_rule(std::size_t count) {
  Meetings meetings(count);
  for (std::size_t round = 0; round < rounds_of(count); ++round)
    if (std::string broken = meetings.add_round(pairs_of_round(count, round)); !broken.empty()) return broken;
  const std::size_t all = count < 2 ? 0 : count * (count - 1) / 2;
  return meetings.pairs() == all ? "" : std::to_string(meetings.pairs()) + " pairs met";
}

TEST(Schedule, EachPairMeetsOnceAndNoMemberTwicePerRound) {
  // All numbers take 4 s, under the sanitizers 22 s. 15 is odd, so that even and odd numbers remain.
  constexpr std::size_t kStep = kIsSanitized ? 15 : 1;
  for (std::size_t count = 0; count <= kMostMembers; count += kStep)
    ASSERT_EQ(broken_rule(count), "") << count << " members";
}

TEST(Schedule, HasOneRoundPerPeerAndOneMoreIfOneRests) {
  const std::vector<std::size_t> rounds = {0, 0, 1, 3, 3, 5, 5, 7, 7};
  for (std::size_t count = 0; count < rounds.size(); ++count)
    EXPECT_EQ(rounds_of(count), rounds[count]) << count << " members";
  EXPECT_EQ(rounds_of(1023), 1023U);
  EXPECT_EQ(rounds_of(1024), 1023U);
}

TEST(Schedule, NoPairOfFewerThanTwoMembers) {
  EXPECT_TRUE(pairs_of_round(0, 0).empty());
  EXPECT_TRUE(pairs_of_round(1, 0).empty());
}

TEST(Schedule, CheckFindsEachBrokenRule) {
  const auto broken = [](std::vector<std::vector<Pair>> rounds) {
    Meetings meetings(4);
    std::string first;
    for (const auto& round : rounds)
      first = first.empty() ? meetings.add_round(round) : first;
    return first;
  };
  EXPECT_EQ(broken({{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}}), "");
  EXPECT_EQ(broken({{{0, 1}}}), "a round has 1 pairs");
  EXPECT_EQ(broken({{{1, 0}, {2, 3}}}), "1-0 of round 1 is not a pair of members, the lower one first");
  EXPECT_EQ(broken({{{2, 2}, {0, 1}}}), "2-2 of round 1 is not a pair of members, the lower one first");
  EXPECT_EQ(broken({{{0, 4}, {2, 3}}}), "0-4 of round 1 is not a pair of members, the lower one first");
  EXPECT_EQ(broken({{{0, 1}, {1, 2}}}), "1-2 of round 1 has a member that is busy");
  EXPECT_EQ(broken({{{0, 1}, {2, 3}}, {{0, 1}, {2, 3}}}), "0-1 of round 2 met in an earlier round");
}

TEST(Retest, PairsEachSuspectWithAnotherGoodMember) {
  EXPECT_EQ(pairs_of_retest({5, 1}, {0, 2, 3}), (std::vector<Pair>{{0, 5}, {1, 2}}));
}

TEST(Retest, SuspectsWithoutPartnerGetNone) {
  EXPECT_EQ(pairs_of_retest({4, 5, 6}, {0}), (std::vector<Pair>{{0, 4}}));
  EXPECT_TRUE(pairs_of_retest({4, 5}, {}).empty());
  EXPECT_TRUE(pairs_of_retest({}, {0, 1}).empty());
}

TEST(Retest, PairsOfManyMembersAreDisjointAndOfOneSuspectEach) {
  std::vector<std::size_t> suspects;
  std::vector<std::size_t> good;
  for (std::size_t member = 0; member < kMostMembers; ++member)
    (member % 3 == 0 ? suspects : good).push_back(member);
  std::vector<std::size_t> paired;
  for (const auto& [first, second] : pairs_of_retest(suspects, good)) {
    EXPECT_LT(first, second);
    EXPECT_NE(first % 3 == 0, second % 3 == 0) << first << "-" << second;
    paired.insert(paired.end(), {first, second});
  }
  EXPECT_EQ(paired.size(), 2 * suspects.size());
  std::ranges::sort(paired);
  EXPECT_EQ(std::ranges::adjacent_find(paired), paired.end());
}

}  // namespace
}  // namespace init::ping
