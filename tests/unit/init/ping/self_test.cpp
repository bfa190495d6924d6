#include "init/ping/self.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Self, DropsNcclConfFileForNcclThatDoesNotReadIt) {
  const char* const environment[] = {"NCCL_CONF_FILE=/x", "NCCL_CONF_FILES=y", nullptr};
  EXPECT_EQ(init::ping::read_by({2, 22, 3}, environment), (std::vector<const char*>{environment[1], nullptr}));
  EXPECT_EQ(init::ping::read_by({2, 23, 0}, environment).size(), 3U);
}

}  // namespace
