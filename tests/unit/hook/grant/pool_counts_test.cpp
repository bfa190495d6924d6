#include "hook/grant/pool_counts.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

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

TEST(CountPools, PoolThatTheNodeHadBeforeIsCountedWithoutHca) {
  const fabric::Inventory none;
  const Config two = expecting(2);
  const auto counts = count_pools(NodeMap(none, two), two, {}, 0, {"rails"});
  EXPECT_EQ(counts, (Counts{{"rails", 2, 0, {}}}));
  EXPECT_TRUE(counts.front().is_lost());
  EXPECT_EQ(count_pools(NodeMap(none, two), two, {}, 0, {"rest", "other"}), Counts()) << "no other pool is expected";
}

TEST(ReadSeenPools, AbsentFileIsEmptyAndOtherContentIsAnError) {
  test_support::TempDir directory;
  const std::string file = directory / "pools-seen.json";
  EXPECT_EQ(read_seen_pools(file).value(), std::set<std::string>());
  EXPECT_EQ(read_seen_pools("").value(), std::set<std::string>());
  test_support::write_file(file, R"(["rails", "vfs"])");
  EXPECT_EQ(read_seen_pools(file).value(), (std::set<std::string>{"rails", "vfs"}));
  for (const char* wrong : {"", "{", "{}", R"(["rails", 1])"}) {
    test_support::write_file(file, wrong);
    const auto read = read_seen_pools(file);
    ASSERT_FALSE(read.has_value()) << wrong;
    EXPECT_EQ(base::remedy_of(read.error()), "remove the file; `rdma-hook recover` writes it again") << wrong;
  }
}

}  // namespace
