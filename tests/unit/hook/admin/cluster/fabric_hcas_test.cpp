#include "hook/admin/cluster/fabric_hcas.hpp"

#include <gtest/gtest.h>

#include "hook/config/config.hpp"
#include "support/inventories.hpp"

namespace {

using Names = std::vector<std::string>;

Names used_of(const fabric::Inventory& node) {
  const hook::Config config;
  const hook::NodeMap map(node, config);
  Names names;
  for (const hook::NodeHca* hca : fabric_hcas(node, map).used)
    names.push_back(hca->name());
  return names;
}

TEST(FabricHcas, LeaveAFasterFrontEndNicOut) {
  fabric::Inventory node = test_support::rails(3);
  node.routes = {fabric::Route{"default", "rail0"}};
  node.hcas[0].ports[0].rate = "800 Gb/sec";
  EXPECT_EQ(used_of(node), (Names{"mlx5_1", "mlx5_2"})) << "the rails have its rate together";
  node.hcas[0].ports[0].rate = "1600 Gb/sec";
  EXPECT_EQ(used_of(node), Names{"mlx5_0"}) << "the rails are slower together";
  node.hcas[0].ports[0].rate = "500 Gb/sec";
  node.hcas[1].ports[0].rate = "200 Gb/sec";
  EXPECT_EQ(used_of(node), Names{"mlx5_0"}) << "a slower rail is not used, so its rate does not count";
}

TEST(FabricHcas, LeaveSoftwareOutBeforeRatesAreCompared) {
  fabric::Inventory node = test_support::rails(2);
  node.hcas[0].driver = "rdma_rxe";
  node.hcas[0].ports[0].rate = "800 Gb/sec";
  EXPECT_EQ(used_of(node), Names{"mlx5_1"});
}

}  // namespace
