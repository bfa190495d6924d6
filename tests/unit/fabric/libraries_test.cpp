// The drivers of libibverbs.
#include "fabric/libraries.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support/temp_dir.hpp"

namespace {

using namespace fabric;
using namespace test_support;

// libibverbs ignores IBV_DRIVERS if RDMAV_DRIVERS is set (libibverbs/dynamic_driver.c, load_drivers()).
TEST(ImageDrivers, AreAlsoInTheEnvironment) {
  const auto has = [](const char* name) {
    const auto names = fabric::Libraries("").drivers().names;
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  ::setenv("IBV_DRIVERS", "first-of-ibv;second-of-ibv:third-of-ibv", 1);
  EXPECT_TRUE(has("first-of-ibv") && has("second-of-ibv") && has("third-of-ibv"));
  ::setenv("RDMAV_DRIVERS", "of-rdmav", 1);
  EXPECT_TRUE(has("of-rdmav"));
  EXPECT_FALSE(has("first-of-ibv"));
  const TempDir root;
  EXPECT_TRUE(fabric::Libraries(root.path()).drivers().names.empty()) << "the environment belongs to this machine";
  ::unsetenv("IBV_DRIVERS");
  ::unsetenv("RDMAV_DRIVERS");
}

}  // namespace
