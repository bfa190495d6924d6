// The ports whose state must be read, because the kernel reports no change.
#include "shim/kubelet/kubelet_node.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/inventories.hpp"

namespace shim {
namespace {

// The kernel reports no changes of these ports: each poll reads their state.
TEST(SilentPorts, AreThoseWhoseChangesCauseNoEventHere) {
  fabric::Inventory inventory = test_support::rails(3, 4);
  std::vector<std::string> names;
  for (fabric::Hca& hca : inventory.hcas) {
    hca.ports[0].netdev = "of_" + hca.name;
    names.push_back(hca.name);
  }
  inventory.hcas[1].ports = {test_support::infiniband_port()};
  const auto paths = [&](const HcaHolds& holds) {
    std::string all;
    for (const auto& [path, state] : silent_ports(inventory, names, holds))
      all += path + "=" + base::value_or(state, std::string("unreadable")) + " ";
    return all;
  };
  EXPECT_EQ(paths({}), "mlx5_1/ports/1/state=4: ACTIVE ");
  HcaHolds holds;
  holds["mlx5_2"].units = 1;
  EXPECT_EQ(paths(holds), "mlx5_1/ports/1/state=4: ACTIVE ") << "its netdev stays in this network namespace";
  holds["mlx5_2"].is_exclusive = true;
  EXPECT_EQ(paths(holds), "mlx5_1/ports/1/state=4: ACTIVE mlx5_2/ports/1/state=4: ACTIVE ");
  inventory.hcas[0].ports[0].netdev.reset();
  EXPECT_EQ(paths({}), "mlx5_0/ports/1/state=4: ACTIVE mlx5_1/ports/1/state=4: ACTIVE ")
      << "its netdev is in another network namespace";
  inventory.hcas[0].ports[0].netdev = "rail0";
  inventory.hcas[0].ports[0].link_layer = base::Unreadable{EIO};
  names.pop_back();
  EXPECT_EQ(paths(holds), "mlx5_0/ports/1/state=4: ACTIVE mlx5_1/ports/1/state=4: ACTIVE ") << "only announced HCAs";
}

}  // namespace
}  // namespace shim
