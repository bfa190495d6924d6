// What is read of a node depends on what decides.
#include <gtest/gtest.h>

#include "hook/grant/node.hpp"
#include "hook/plan/match.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace hook {
namespace {

using test_support::TempDir;

struct Node {
  TempDir directory;
  NodeSettings settings;

  Node() {
    auto inventory = test_support::rails(3, 4);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    test_support::lay_out(inventory, directory / "node");
    settings.root = directory / "node";
  }

  fabric::Inventory read(const Request& request, const Config& config) const {
    const auto inventory = read_node_for(request, config, settings);
    return inventory ? *inventory : fabric::Inventory{};
  }
};

Request naming(const std::string& list) {
  Request request;
  request.wish = *parse_wish(list, "a test");
  return request;
}

TEST(ReadNodeFor, WhoNamesHcasCostsTheseAlone) {
  const Node node;
  const auto inventory = node.read(naming("mlx5_1"), {});
  ASSERT_EQ(inventory.hcas.size(), 1U);
  const fabric::Hca& hca = inventory.hcas.front();
  EXPECT_EQ(hca.name, "mlx5_1");
  EXPECT_EQ(hca.uverbs_dev, "231:193");
  EXPECT_TRUE(hca.pci && hca.class_link && hca.verbs_link);
  EXPECT_TRUE(hca.ports.at(0).is_active());
  EXPECT_FALSE(hca.vendor) << "nothing selects by it";
  EXPECT_TRUE(inventory.netdevs.empty());
}

TEST(ReadNodeFor, PoolsThatSelectSeeWhatTheySelectBy) {
  const Node node;
  Config config;
  config.pools.push_back({"rails", {}, {Mode::kHca}, {}, std::nullopt});
  EXPECT_TRUE(node.read(naming("mlx5_1"), config).netdevs.empty());
  config.pools.front().selectors.if_names = {"rail*"};
  const auto inventory = node.read(naming("mlx5_1"), config);
  ASSERT_EQ(inventory.hcas.size(), 1U);
  EXPECT_TRUE(inventory.hcas.front().vendor);
  EXPECT_EQ(inventory.hcas.front().ports.at(0).netdev, "rail1");
}

TEST(ReadNodeFor, AChoiceSeesAll) {
  const Node node;
  for (const char* list : {"all", "2", "rail:1", "mlx5_*"}) {
    const auto inventory = node.read(naming(list), {});
    EXPECT_EQ(inventory.hcas.size(), 3U) << list;
    EXPECT_EQ(inventory.netdevs.size(), 3U) << list;
  }
  EXPECT_EQ(node.read(naming("mlx5_7"), {}).hcas.size(), 3U) << "the refusal says what there is";
}

TEST(ReadNodeFor, GivenNodesKeepTheOrderOfTheirNetdevs) {
  const Node node;
  Request request = naming("all");
  request.given_is_the_grant = true;
  request.given = {{"/dev/infiniband/uverbs0", 'c', 231, 192}, {"/dev/infiniband/uverbs2", 'c', 231, 194}};
  request.order = {"rail2", "rail0"};
  const auto inventory = node.read(request, {});
  const Config config;
  const Candidates among(inventory, request, config);
  ASSERT_EQ(among.given.size(), 2U);
  EXPECT_EQ(among.given.front()->name(), "mlx5_2");
}

}  // namespace
}  // namespace hook
