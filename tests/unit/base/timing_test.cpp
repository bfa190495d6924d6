#include "hook/base/timing.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace hook {
namespace {

void pass(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
}

TEST(Timing, Nothing) {
  EXPECT_TRUE(Timing().steps().empty());
}

TEST(Timing, StepsInOrderAddUp) {
  using std::chrono::milliseconds;
  Timing timing;
  pass(milliseconds(2));
  timing.step("links");
  pass(milliseconds(4));
  timing.step("up");
  pass(milliseconds(3));
  timing.step("links");
  const auto& steps = timing.steps();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].first, "links");
  EXPECT_EQ(steps[1].first, "up");
  EXPECT_GE(steps[0].second, 5000U) << "microseconds, both times";
  EXPECT_GE(steps[1].second, 4000U);
  const auto total = timing.total();
  EXPECT_GE(total, steps[0].second + steps[1].second) << "nothing belongs to two";
  pass(milliseconds(1));
  EXPECT_GE(timing.total(), total + 1000) << "it goes on";
  EXPECT_EQ(timing.steps().size(), 2U);
}

}  // namespace
}  // namespace hook
