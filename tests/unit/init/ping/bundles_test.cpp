#include "init/ping/bundles.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using namespace init::ping;

std::vector<Desk::Outgoing> take(Bundles& bundles, bool is_complete, double now, bool is_idle = true) {
  std::vector<Desk::Outgoing> out;
  bundles.take(is_complete, is_idle, now, out);
  return out;
}

TEST(Bundles, GathersMessagesForOneConnection) {
  Bundles bundles;
  EXPECT_TRUE(std::isinf(bundles.due()));
  bundles.add(7, 65, Go{1, {1}});
  bundles.add(7, 66, Go{1, {0}});
  bundles.add(8, 129, Lost{});
  EXPECT_TRUE(take(bundles, false, 5).empty());
  EXPECT_DOUBLE_EQ(bundles.due(), 5 + Bundles::kGatherSeconds);
  EXPECT_TRUE(take(bundles, false, 5.009).empty());
  EXPECT_TRUE(take(bundles, false, 5.02, false).empty()) << "further messages are here";
  const auto out = take(bundles, false, 5.01);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].connection, 7);
  const auto& carried = std::get<Bundle>(out[0].message).carried;
  ASSERT_EQ(carried.size(), 2U);
  EXPECT_EQ(carried[1].rank, 66U);
  EXPECT_EQ(carried[1].frame, encode(Go{1, {0}}));
  EXPECT_EQ(out[1].connection, 8);
  EXPECT_TRUE(std::isinf(bundles.due()));
  EXPECT_TRUE(take(bundles, true, 6).empty());
}

TEST(Bundles, SendsAtOnceIfNoneFollows) {
  Bundles bundles;
  bundles.add(7, 65, Lost{});
  EXPECT_EQ(take(bundles, true, 5).size(), 1U);
}

// 32 failures with the longest texts, of all ranks of a group.
TEST(Bundles, NoneIsLongerThanFrame) {
  Bundles bundles;
  const Results longest{
      1, std::vector<TestResult>(kMostRails, {{Layer::kVerbs, std::string(kLongestText, 'x')}, true, 1})};
  for (unsigned rank = 0; rank < 300; ++rank) {
    bundles.add(1, rank, longest);
    bundles.add(2, rank, Lost{});
  }
  std::size_t carried = 0;
  for (auto& one : take(bundles, true, 0)) {
    carried += std::get<Bundle>(one.message).carried.size();
    EXPECT_LE(encode(std::move(one.message)).size(), kLongestFrame);
  }
  EXPECT_EQ(carried, 600U);
}

TEST(Bundles, DiscardsMessagesForConnectionThatEnded) {
  Bundles bundles;
  bundles.add(7, 65, Lost{});
  bundles.add(8, 129, Lost{});
  bundles.discard(7);
  const auto out = take(bundles, true, 0);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out.front().connection, 8);
}

}  // namespace
