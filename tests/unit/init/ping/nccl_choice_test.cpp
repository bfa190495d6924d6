#include "init/ping/nccl_choice.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using namespace init;
using namespace init::ping;
using namespace test_support;

Settings settings_of(std::initializer_list<std::pair<const char*, const char*>> variables) {
  Settings settings;
  for (const auto& [name, value] : variables)
    settings[name] = {value, "environment"};
  return settings;
}

std::vector<std::string> names_of(const NcclChoice& choice) {
  std::vector<std::string> names;
  for (const Rail& rail : choice.rails)
    names.push_back(rail.device + ":" + std::to_string(rail.port));
  return names;
}

TEST(NcclChoice, TakesActivePortsThatTheListSelects) {
  fabric::Inventory node = rails(4);
  node.hcas[1].ports[0].state = "1: DOWN";
  node.hcas[2].accessible = false;
  const NcclChoice all = nccl_choice(node, {}, nccl::kNewest);
  EXPECT_EQ(names_of(all), (std::vector<std::string>{"mlx5_0:1", "mlx5_3:1"}));
  EXPECT_EQ(all.unused, (std::vector<std::string>{"mlx5_1:1: the port is not active",
                                                  "mlx5_2:1: its device node cannot be opened"}));
  const NcclChoice one = nccl_choice(node, settings_of({{"NCCL_IB_HCA", "=mlx5_3"}}), nccl::kNewest);
  EXPECT_EQ(names_of(one), std::vector<std::string>{"mlx5_3:1"});
  EXPECT_EQ(one.unused.front(), "mlx5_0:1: NCCL_IB_HCA is =mlx5_3");
}

TEST(NcclChoice, IsEmptyIfNcclUsesNoHca) {
  const std::pair<Settings, const char*> rows[] = {
      {settings_of({{"NCCL_IB_DISABLE", "1"}}), "mlx5_0:1: NCCL_IB_DISABLE is set"},
      {settings_of({{"NCCL_NET", "socket"}}), "mlx5_0:1: NCCL_NET is Socket"}};
  for (const auto& [settings, reason] : rows) {
    const NcclChoice choice = nccl_choice(rails(2), settings, nccl::kNewest);
    EXPECT_TRUE(choice.rails.empty());
    EXPECT_EQ(choice.unused.front(), reason);
  }
}

TEST(NcclChoice, TakesTheGidOfNcclsOwnRule) {
  fabric::Inventory node = rails(1);
  // The GID of another container is before the own one.
  node.hcas[0].ports[0].gids = {v1(0, "fe80::1"), v2(1, "fe80::1"), v2(2, "::ffff:10.9.9.9"), v2(3, "::ffff:10.1.0.1")};
  const NcclChoice own = nccl_choice(node, {}, nccl::kNewest);
  EXPECT_EQ(own.rails[0].gid_index, 2U);
  EXPECT_EQ(own.rails[0].netdev, "");
  EXPECT_EQ(own.doubts[0], "the GID at index 2, 10.9.9.9, is no address of this network namespace");
  const NcclChoice fixed = nccl_choice(node, settings_of({{"NCCL_IB_GID_INDEX", "3"}}), nccl::kNewest);
  EXPECT_EQ(fixed.rails[0].gid_index, 3U);
  EXPECT_EQ(fixed.rails[0].netdev, "rail0");
  EXPECT_EQ(fixed.doubts[0], "");
  // Before 2.21 an unset index is 0.
  const NcclChoice old = nccl_choice(node, {}, {2, 20, 5});
  EXPECT_EQ(old.rails[0].gid_index, 0U);
  EXPECT_EQ(old.doubts[0], "the GID at index 0 has type RoCE v1");
}

TEST(NcclChoice, NamesEmptyGid) {
  const NcclChoice choice = nccl_choice(rails(1), settings_of({{"NCCL_IB_GID_INDEX", "9"}}), nccl::kNewest);
  EXPECT_EQ(choice.rails[0].problem, (Failure{Layer::kGid, "its GID table has no GID at index 9"}));
}

TEST(NcclChoice, ReadsHowNcclConnects) {
  const Connecting usual = nccl_choice(rails(1), {}, nccl::kNewest).connecting;
  EXPECT_EQ(usual.traffic_class, 0);
  EXPECT_EQ(usual.timeout, 20);
  EXPECT_EQ(usual.retries, 7);
  const Connecting set = nccl_choice(rails(1),
                                     settings_of({{"NCCL_IB_TC", "106"},
                                                  {"NCCL_IB_SL", "0x3"},
                                                  {"NCCL_IB_PKEY", "1"},
                                                  {"NCCL_IB_TIMEOUT", "22"},
                                                  {"NCCL_IB_RETRY_CNT", "3"}}),
                                     nccl::kNewest)
                             .connecting;
  EXPECT_EQ(set.traffic_class, 106);
  EXPECT_EQ(set.service_level, 3);
  EXPECT_EQ(set.pkey_index, 1);
  EXPECT_EQ(set.timeout, 22);
  EXPECT_EQ(set.retries, 3);
}

TEST(NcclChoice, SetsTheNumbersOfTheQueuePairAsNcclDoes) {
  const auto connecting = [](const char* name, const char* value, const nccl::Version& version = nccl::kNewest) {
    return nccl_choice(rails(1), settings_of({{name, value}}), version).connecting;
  };
  EXPECT_EQ(connecting("NCCL_IB_TIMEOUT", "40").timeout, 40) << "the driver refuses it";
  EXPECT_EQ(connecting("NCCL_IB_TIMEOUT", "276").timeout, 20) << "a byte";
  EXPECT_EQ(connecting("NCCL_IB_RETRY_CNT", "10").retries, 10);
  EXPECT_EQ(connecting("NCCL_IB_TC", "-1").traffic_class, 0);
  EXPECT_EQ(connecting("NCCL_IB_TC", "-1", {2, 22, 3}).traffic_class, 255);
  EXPECT_EQ(connecting("NCCL_IB_SL", "-1", {2, 22, 3}).service_level, 255);
  EXPECT_EQ(connecting("NCCL_IB_TC", "", {2, 22, 3}).traffic_class, 0);
  EXPECT_EQ(connecting("NCCL_IB_TC", "", {2, 22, 3}).timeout, 18);
}

TEST(NcclChoice, KeepsTheCrOfNcclConfBeforeNccl230) {
  Settings settings;
  add_conf("NCCL_IB_HCA==mlx5_0\r\n", "/etc/nccl.conf", settings);
  const auto rails_of = [&](const nccl::Version& version) {
    return nccl_choice(rails(1), read_by(version, settings), version).rails.size();
  };
  EXPECT_EQ(rails_of({2, 30, 0}), 1U);
  EXPECT_EQ(rails_of({2, 29, 7}), 0U);
}

TEST(NcclChoice, HasAProblemWithoutQueuePairs) {
  const auto problem = [](const char* pairs) {
    return nccl_choice(rails(1), settings_of({{"NCCL_IB_QPS_PER_CONNECTION", pairs}}), nccl::kNewest).rails[0].problem;
  };
  EXPECT_EQ(problem("0").layer, Layer::kVerbs);
  EXPECT_EQ(problem("0").detail, "NCCL_IB_QPS_PER_CONNECTION: 1 to 128 is the range, and with 0 no connection works");
  EXPECT_FALSE(problem("128").failed());
}

TEST(NcclChoice, UsesIndexZeroOnInfiniBandWithoutFlid) {
  fabric::Inventory node;
  node.hcas = {hca("mlx5_0", 0, {infiniband_port()})};
  node.hcas[0].ports[0].gids = {v1(0, "fe80::1"), v1(1, "fe80::5:0:0:1")};
  EXPECT_EQ(nccl_choice(node, settings_of({{"NCCL_IB_GID_INDEX", "3"}}), nccl::kNewest).rails[0].gid_index, 0U);
  node.hcas[0].ports[0].gids[1] = v1(1, "fe80:0:5::1");
  EXPECT_EQ(nccl_choice(node, {}, nccl::kNewest).rails[0].gid_index, 1U);
}

}  // namespace
