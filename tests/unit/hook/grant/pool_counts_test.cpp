#include "hook/grant/pool_counts.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using namespace hook;

using Counts = std::vector<PoolCount>;

Config expecting(unsigned number) {
  Config config;
  config.pools.push_back({.name = "rails", .modes = {Mode::kExclusive}, .expect = number});
  config.pools.push_back({.name = "rest"});
  return config;
}

TEST(CountPools, CountsHcasWithNodeAndActivePort) {
  auto node = test_support::rails(8);
  const Config config = expecting(8);
  EXPECT_EQ(count_pools(NodeMap(node, config), config), (Counts{{"rails", 8, 8, {}}}));
  node.hcas[3].ports.front().state = std::string("1: DOWN");
  node.hcas[5].uverbs.reset();
  node.hcas[6].ports.front().state = base::Unreadable{EIO};
  EXPECT_EQ(count_pools(NodeMap(node, config), config), (Counts{{"rails", 8, 6, {"mlx5_3", "mlx5_5"}}}));
  EXPECT_EQ(count_pools(NodeMap(node, config), config).front().missing(), 2U);
}

TEST(CountPools, CountsHcasOfContainers) {
  auto node = test_support::rails(8);
  const Config config = expecting(8);
  node.hcas[3].ports.front().state = std::string("1: DOWN");
  // A container can have set the port down.
  EXPECT_EQ(count_pools(NodeMap(node, config), config, {"mlx5_3"}).front().missing(), 0U);
  // In exclusive mode of the RDMA subsystem the node does not show an HCA that a container has.
  node.hcas.erase(node.hcas.begin() + 4, node.hcas.end());
  EXPECT_EQ(count_pools(NodeMap(node, config), config, {}, 4).front().missing(), 1U);
  EXPECT_EQ(count_pools(NodeMap(node, config), config, {}, 40).front().usable, 8U);
}

TEST(CountPools, PoolWithoutExpectOrWithoutHcaOfTheNodeIsNotCounted) {
  const auto node = test_support::rails(2);
  Config config;
  config.pools.push_back({.name = "rails"});
  EXPECT_EQ(count_pools(NodeMap(node, config), config), Counts());
  const fabric::Inventory none;
  const Config two = expecting(2);
  EXPECT_EQ(count_pools(NodeMap(none, two), two), Counts()) << "a node without RDMA";
  EXPECT_EQ(count_pools(NodeMap(none, two), two, {}, 1), (Counts{{"rails", 2, 1, {}}})) << "a container has an HCA";
}

}  // namespace
