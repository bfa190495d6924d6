#include "init/ping/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
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

// --- The sparse schedule.

// Returns the broken rule of the rounds of a sparse schedule, empty if there is none.
std::string broken_sparse_rule(std::size_t count, std::uint32_t seed) {
  const Schedule schedule(count, false, seed);
  const std::size_t group = schedule.is_complete() ? std::max<std::size_t>(count, 1) : schedule.group();
  const std::size_t groups = (count + group - 1) / group;
  std::set<Pair> seen;
  std::vector<std::size_t> peers(count);
  std::set<Pair> met;  // groups
  for (std::size_t round = 0; round < schedule.rounds(); ++round) {
    std::vector<bool> is_busy(count);
    for (const Pair& pair : schedule.pairs(round)) {
      const auto [first, second] = pair;
      if (first >= second || second >= count) return "no pair of members";
      if (is_busy[first] || is_busy[second]) return "a member is busy";
      if (!seen.insert(pair).second) return "a pair meets twice";
      is_busy[first] = is_busy[second] = true;
      ++peers[first];
      ++peers[second];
      met.emplace(std::min(first / group, second / group), std::max(first / group, second / group));
    }
  }
  if (schedule.rounds() != sparse_rounds_of(count)) return "wrong number of rounds";
  // The partners of the seats that the last group lacks rest.
  const std::size_t rests = schedule.is_complete() || count % group == 0 ? 0 : 8;
  if (count > 1 && std::ranges::min(peers) + rests < sparse_rounds_of(count) - count % 2) return "a member meets few";
  const std::size_t full = groups > 1 ? count / group : 0;
  for (std::size_t one = 0; one < full; ++one) {
    for (std::size_t other = one; other < full; ++other)
      if (!met.contains({one, other})) return "two groups do not meet";
  }
  return "";
}

TEST(SparseSchedule, EachGroupMeetsEachGroupAndNoPairMeetsTwice) {
  constexpr std::size_t kStep = kIsSanitized ? 37 : 5;
  for (std::size_t count = 0; count <= 1400; count += kStep)
    ASSERT_EQ(broken_sparse_rule(count, 7), "") << count;
  for (const std::size_t count : {127U, 128U, 129U, 1000U, 1024U, 1025U, 4096U, 16384U}) {
    for (const std::uint32_t seed : {0U, 1U, 0xFFFFFFFFU})
      ASSERT_EQ(broken_sparse_rule(count, seed), "") << count << " " << seed;
  }
}

TEST(SparseSchedule, RoundsGrowWithTheLogarithm) {
  const std::pair<std::size_t, std::size_t> rows[] = {{0, 0},    {1, 0},    {2, 1},     {8, 6},      {16, 8},
                                                      {128, 14}, {129, 16}, {1024, 20}, {16384, 28}, {65536, 32}};
  for (const auto& [count, rounds] : rows)
    EXPECT_EQ(sparse_rounds_of(count), rounds) << count;
}

TEST(SparseSchedule, GroupIsTheSmallestForWhichTheRoundsSuffice) {
  const std::pair<std::size_t, std::size_t> rows[] = {{128, 4},   {512, 8},    {1024, 8},
                                                      {4096, 16}, {16384, 32}, {65536, 64}};
  for (const auto& [count, group] : rows)
    EXPECT_EQ(Schedule(count, false, 1).group(), group) << count;
  EXPECT_TRUE(Schedule(1024, true, 1).is_complete());
  EXPECT_TRUE(Schedule(5, false, 1).is_complete()) << "the complete schedule has as few rounds";
}

std::uint64_t digest_of(const Schedule& schedule) {
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a
  for (std::size_t round = 0; round < schedule.rounds(); ++round) {
    for (const auto& [first, second] : schedule.pairs(round))
      digest = (digest ^ (first << 20 | second)) * 1099511628211U;
  }
  return digest;
}

TEST(SparseSchedule, DependsOnNumberOfMembersAndSeedOnly) {
  EXPECT_EQ(digest_of(Schedule(1024, false, 1)), digest_of(Schedule(1024, false, 1)));
  EXPECT_NE(digest_of(Schedule(1024, false, 1)), digest_of(Schedule(1024, false, 2)));
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
