// The ranking of candidates, compared with the choice among all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "base/text.hpp"
#include "hook/plan/rank.hpp"
#include "hook/request/parsers.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

// A node, and the grants that the index shows.
struct RankScene {
  fabric::Inventory inventory = test_support::rails(8, 1);
  Request request;
  Config config;
  Holdings holdings;
  std::vector<std::string> granted = {};
  std::set<std::string> lost = {};
  unsigned losses = 0;
  unsigned turn = 0;
  std::vector<std::string> looked_at = {};

  explicit RankScene(const std::string& count, Mode mode = Mode::kExclusive) {
    request.selection = *parse_selection(count, "a test");
    request.mode = mode;
  }

  std::optional<std::vector<std::string>> ranked() {
    looked_at.clear();
    std::map<std::string, unsigned> own;
    for (const auto& [name, holding] : holdings)
      if (holding.own) own[name] = holding.own_units;
    const NodeMap node(inventory, config);
    return rank(
        {.inventory = inventory,
         .node = node,
         .request = request,
         .config = config,
         .holding =
             [&](const std::string& hca, unsigned) {
               looked_at.push_back(hca);
               return holdings[hca];
             },
         .is_active = [&](const std::string& hca) { return find_hca(inventory, hca)->ports.front().is_active(); },
         .own = own,
         .granted = granted,
         .lost = lost,
         .losses = losses,
         .turn = turn});
  }
  std::string text() {
    const auto names = ranked();
    return names ? base::join(*names, " ") : "too few";
  }
};

TEST(Rank, LooksOnlyAtHcasThatItNeeds) {
  RankScene scene("2");
  EXPECT_EQ(scene.text(), "mlx5_0 mlx5_1");
  EXPECT_EQ(base::join(scene.looked_at, " "), "mlx5_0 mlx5_1");
  scene.holdings["mlx5_0"].exclusive_owner = "container web";
  EXPECT_EQ(scene.text(), "mlx5_1 mlx5_2");
  scene.inventory.hcas[1].ports.front().state = "1: DOWN";
  EXPECT_EQ(scene.text(), "mlx5_2 mlx5_3") << "ACTIVE ports first";
  scene.holdings["mlx5_7"].own = true;
  scene.holdings["mlx5_7"].own_units = 1;
  EXPECT_EQ(scene.text(), "mlx5_7 mlx5_2") << "own HCAs first";
  scene.lost = {"mlx5_2"};
  EXPECT_EQ(scene.text(), "mlx5_7 mlx5_3");
}

TEST(Rank, LeavesOtherRequestsToTheDecisionAmongAll) {
  EXPECT_EQ(RankScene("9").text(), "too few");
  EXPECT_EQ(RankScene("all").text(), "too few");
  EXPECT_EQ(RankScene("mlx5_*").text(), "too few");
  RankScene scene("3");
  scene.request.narrowed_by = {*parse_selection("2", "a narrower test")};
  EXPECT_EQ(scene.text(), "mlx5_0 mlx5_1");
  scene.request.narrowed_by = {*parse_selection("mlx5_7", "a narrower test")};
  EXPECT_EQ(scene.text(), "too few");
}

// The grant of an HCA that looks held may be stale.
TEST(Rank, LeavesWorseChoiceToTheDecisionAmongAll) {
  RankScene scene("1");
  scene.holdings["mlx5_0"].exclusive_owner = "container web";
  for (unsigned i = 1; i < 8; ++i)
    scene.inventory.hcas[i].ports.front().state = "1: DOWN";
  EXPECT_EQ(scene.text(), "too few") << "mlx5_0 is ACTIVE";
  scene.inventory.hcas[0].ports.front().state = "1: DOWN";
  EXPECT_EQ(scene.text(), "mlx5_1");
  scene.granted = {"mlx5_2"};
  EXPECT_EQ(scene.text(), "mlx5_2");
  scene.holdings["mlx5_2"].exclusive_owner = "container web";
  EXPECT_EQ(scene.text(), "too few") << "the container has the node of mlx5_2";

  RankScene near("1");
  fabric::Gpu& gpu = near.inventory.gpus.emplace().emplace_back();
  gpu.pci = "0000:80:00.0";
  gpu.numa_node = 0;
  gpu.nodes = {"nvidia0"};
  near.request.gpu_nodes = {"/dev/nvidia0"};
  for (unsigned i = 0; i < 8; ++i)
    near.inventory.hcas[i].numa_node = i < 2 ? 0 : 1;
  near.holdings["mlx5_0"].exclusive_owner = "container web";
  EXPECT_EQ(near.text(), "mlx5_1") << "as near";
  near.holdings["mlx5_1"].exclusive_owner = "container web";
  EXPECT_EQ(near.text(), "too few") << "the others are farther";
}

// Calls that start at once and lose HCAs to each other spread over twice as many HCAs with each loss.
TEST(Rank, SpreadsAfterLosses) {
  RankScene scene("1");
  for (const auto& [losses, expected] : {std::pair(0U, 1U), {1U, 2U}, {2U, 4U}, {3U, 8U}, {40U, 8U}}) {
    scene.losses = losses;
    std::set<std::string> chosen;
    for (scene.turn = 0; scene.turn < 64; ++scene.turn)
      chosen.insert(scene.text());
    EXPECT_EQ(chosen.size(), expected) << losses;
  }
  scene.holdings["mlx5_5"].own = true;
  scene.holdings["mlx5_5"].own_units = 1;
  EXPECT_EQ(scene.text(), "mlx5_5") << "own HCAs are not spread";
}

// Without losses, and if the index is right, the ranking is the choice among all, or leaves it to that choice.
TEST(Rank, AgreesWithTheChoiceAmongAll) {
  std::minstd_rand random(11);
  const auto one_of = [&](unsigned most) { return static_cast<unsigned>(random()) % most; };
  unsigned ranked_scenes = 0;
  unsigned left = 0;
  for (int round = 0; round < 600; ++round) {
    const Mode mode = std::array{Mode::kExclusive, Mode::kHca, Mode::kShared}.at(one_of(3));
    RankScene scene(fmt::format("{}", 1 + one_of(5)), mode);
    Pool pool{"all", {}, {mode}, {}, std::nullopt};
    if (one_of(2) == 0) pool.limits[mode] = 1 + one_of(3);
    scene.config.pools = {pool};
    const bool has_gpus = one_of(2) == 0;
    if (has_gpus) scene.inventory.gpus.emplace();
    for (unsigned i = 0; i < 3 && has_gpus; ++i) {
      fabric::Gpu& gpu = scene.inventory.gpus->emplace_back();
      gpu.pci = fmt::format("0000:8{}:00.0", i);
      gpu.numa_node = static_cast<int>(one_of(2));
      gpu.nodes = {fmt::format("nvidia{}", i)};
      if (one_of(3) > 0) scene.request.gpu_nodes.push_back(fmt::format("/dev/nvidia{}", i));
    }
    for (fabric::Hca& hca : scene.inventory.hcas) {
      hca.numa_node = static_cast<int>(one_of(2));
      if (one_of(3) == 0) hca.ports.front().state = "1: DOWN";
      Holding& holding = scene.holdings[hca.name];
      if (one_of(4) == 0) holding.exclusive_owner = "container web";
      holding.others = one_of(3);
      holding.own = one_of(6) == 0;
      holding.own_units = holding.own ? 1 : 0;
    }
    const Candidates among(scene.inventory, scene.request, scene.config);
    const auto chosen = choose({.among = among, .holdings = scene.holdings, .view_directory = "/v"});
    const auto ranked = scene.ranked();
    ASSERT_TRUE(chosen.has_value() || !ranked) << round;
    left += chosen.has_value() && !ranked ? 1 : 0;
    if (!ranked) continue;
    std::set<std::string> expected;
    for (const ChosenHca& unit : chosen->units)
      expected.insert(unit.node->name());
    ASSERT_EQ(std::set<std::string>(ranked->begin(), ranked->end()), expected) << round;
    ++ranked_scenes;
  }
  EXPECT_GT(ranked_scenes, 100U);
  EXPECT_LT(left, ranked_scenes);
}

}  // namespace
}  // namespace hook
