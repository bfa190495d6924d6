#include "init/rdma_off.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"
#include "support/lines_of.hpp"

namespace {

using namespace init;
using Lines = std::vector<std::string>;

// Returns the lines for one setting of the environment, on a machine with mlx5_0 and mlx5_1.
Lines lines_of(const std::string& name, const std::string& value, std::optional<nccl::Version> version = {}) {
  const fabric::Inventory inventory = test_support::rails(2);
  return test_support::lines_of(settings_without_rdma({{name, {value, "environment"}}}, {"nccl", "ucx"}, version,
                                                      find_candidates(inventory, {})));
}

TEST(SettingsWithoutRdma, ReportsNetworksOfNccl) {
  EXPECT_EQ(lines_of("NCCL_NET", "socket"), Lines{"NCCL_NET=socket (environment): NCCL will not use RDMA"});
  EXPECT_EQ(lines_of("NCCL_NET", "gIB"),
            Lines{"NCCL_NET=gIB (environment): NCCL will use only the plugin with this network, which may ignore "
                  "NCCL_IB_*"});
  EXPECT_EQ(lines_of("NCCL_NET", "ib"), Lines{});
  EXPECT_EQ(lines_of("NCCL_NET_PLUGIN", "NONE"), Lines{});
  EXPECT_EQ(lines_of("NCCL_NET_PLUGIN", "ofi"),
            Lines{"NCCL_NET_PLUGIN=ofi (environment): NCCL prefers this plugin to its own RDMA, and the plugin may "
                  "ignore NCCL_IB_*"});
  for (const auto& [network, count] : {std::pair{"IB", 0U}, {"Socket", 1U}, {"FasTrak", 2U}}) {
    const Settings settings = {{"NCCL_NET", {network, "f"}}, {"NCCL_NET_PLUGIN", {"fastrak", "f"}}};
    EXPECT_EQ(settings_without_rdma(settings, {"nccl"}, {}, {}).size(), count) << network;
  }
}

TEST(SettingsWithoutRdma, ReportsOtherSettingsOfNccl) {
  EXPECT_EQ(lines_of("NCCL_IB_DISABLE", "1"), Lines{"NCCL_IB_DISABLE=1 (environment): NCCL will not use RDMA"});
  EXPECT_EQ(lines_of("NCCL_IB_DISABLE", "0"), Lines{});
  EXPECT_EQ(lines_of("NCCL_ENV_PLUGIN", "site"),
            Lines{"NCCL_ENV_PLUGIN=site (environment): NCCL 2.29 and later take all settings from this plugin, and may "
                  "not see exports"});
  EXPECT_EQ(lines_of("NCCL_ENV_PLUGIN", "none"), Lines{});
  EXPECT_EQ(lines_of("NCCL_ENV_PLUGIN", "site", nccl::Version{2, 28, 9}), Lines{});
  EXPECT_EQ(lines_of("NCCL_ENV_PLUGIN", "site", nccl::Version{2, 29, 0}).size(), 1U);
}

TEST(SettingsWithoutRdma, ReadsTransportsAsUcxDoes) {
  for (const char* with : {"all",          "ib",     "rc",       "rc_v",    "rc_x,tcp", "tcp,dc",    "dc_x",
                           "dc_mlx5,cuda", "ud",     "ud_v",     "ud_x",    "rc_verbs", "\\ud_mlx5", "srd,sm",
                           "^tcp",         "^rc,dc", "^ud,rc_v", "tcp,all", "^all",     "\\srd",     "gga_mlx5"})
    EXPECT_EQ(lines_of("UCX_TLS", with), Lines{}) << with;
  for (const char* without : {"tcp", "self,sm,cuda", "tcp, rc", "\\rc", "ud:aux", "rc_verbs:aux", "^ib", "^rc,dc,ud",
                              "^rc_v,rc_x,dc_x,\\ud_verbs,ud_mlx5", "RC", "rcx"}) {
    EXPECT_EQ(lines_of("UCX_TLS", without), Lines{std::string("UCX_TLS=") + without +
                                                  " (environment): has no RDMA transport: UCX will not use RDMA"});
  }
}

TEST(SettingsWithoutRdma, ReadsDevicesAsUcxDoes) {
  for (const char* with : {"all", "mlx5_0:1", "eth0,mlx5_9:1", "mlx5_[0-1]:1", "^eth0", "^mlx5_0:1", "^mlx5_0,mlx5_1"})
    EXPECT_EQ(lines_of("UCX_NET_DEVICES", with), Lines{}) << with;
  for (const char* without : {"eth0", "eth0,ib0", "mlx5_0", "^mlx5_0:1,eth0,mlx5_1:1"})
    EXPECT_EQ(lines_of("UCX_NET_DEVICES", without),
              Lines{std::string("UCX_NET_DEVICES=") + without + " (environment): has no HCA: UCX will not use RDMA"});
  const Settings all_excluded = {{"UCX_NET_DEVICES", {"^mlx5_0:1", "f"}}};
  EXPECT_TRUE(settings_without_rdma(all_excluded, {"ucx"}, {}, {}).empty()) << "without HCAs, nothing is excluded";
}

TEST(SettingsWithoutRdma, ReportsOnlyLibrariesWithExports) {
  const Settings settings = {
      {"NCCL_NET", {"Socket", "/etc/nccl.conf"}}, {"UCX_TLS", {"tcp\n", "f"}}, {"NCCL_IB_TC", {}}};
  EXPECT_EQ(test_support::lines_of(settings_without_rdma(settings, {"nccl"}, {}, {})),
            Lines{"NCCL_NET=Socket (/etc/nccl.conf): NCCL will not use RDMA"});
  EXPECT_EQ(test_support::lines_of(settings_without_rdma(settings, {"ucx"}, {}, {})),
            Lines{"UCX_TLS=tcp? (f): has no RDMA transport: UCX will not use RDMA"});
  EXPECT_TRUE(settings_without_rdma(settings, {"mooncake"}, {}, {}).empty());
}

}  // namespace
