// A plan returns the rails, ranges of addresses and refusals of createRuntime, without changes.
#include <gtest/gtest.h>

#include "hook/rails/address/pool.hpp"
#include "hook/rails/foresee.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"

namespace hook {
namespace {

using namespace test_support;

// Two RoCE rails of a snapshot, with a child of each in network n.
struct ForesightScene {
  Plan plan;
  Config config;
  fabric::Inventory inventory = test_support::rails(2);

  explicit ForesightScene(Mode mode) {
    Network network;
    network.name = "n";
    for (unsigned i = 0; i < 2; ++i) {
      network.ranges.push_back({.rail = i,
                                .subnet = address(fmt::format("10.{}.0.0", i)),
                                .prefix = 16,
                                .from = address(fmt::format("10.{}.0.1", i)),
                                .to = address(fmt::format("10.{}.0.3", i)),
                                .gateway = address(fmt::format("10.{}.0.1", i))});
      plan.netdevs.push_back(
          {fmt::format("rail{}", i), fmt::format("net{}", i + 1), mode, fmt::format("mlx5_{}", i), i, "n"});
    }
    config.networks["n"] = network;
    inventory.netdevs.clear();
    for (unsigned i = 0; i < 2; ++i)
      inventory.netdevs.push_back(test_support::netdev(fmt::format("rail{}", i), {fmt::format("192.168.{}.1", i)}));
    inventory.routes = std::vector<fabric::Route>{{"default", "eth0"}};
  }

  Network& network() { return config.networks.at("n"); }
  base::Result<Foreseen> foresee() const {
    return foresee_rails(
        {.plan = plan, .config = config, .inventory = inventory, .is_snapshot = true, .key = "container-a"});
  }
};

// Returns "net1 macvlan 10.0.0.1-10.0.0.3/16 by 10.0.0.1 table 100" for each rail, then each warning after "!"; or the
// error.
std::string shown(const ForesightScene& scene) {
  const auto foreseen = scene.foresee();
  if (!foreseen) return foreseen.error().message;
  std::string text;
  for (const ForeseenRail& one : foreseen->rails) {
    text += fmt::format("{} {}", one.rail.name, to_string(one.rail.kind));
    for (const RailAddress& own : one.rail.addresses) {
      text += fmt::format(" {}/{}", fabric::to_string(own.address), own.prefix);
      if (own.gateway) text += " by " + fabric::to_string(*own.gateway);
    }
    for (const AddressRange& range : one.ranges) {
      text += fmt::format(" {}/{}", to_string(range), range.prefix);
      if (range.gateway) text += " by " + fabric::to_string(*range.gateway);
    }
    if (one.addresses_by != "config.json") text += " of " + one.addresses_by;
    text += one.rail.table ? fmt::format(" table {}\n", *one.rail.table) : "\n";
  }
  for (const std::string& warning : foreseen->warnings)
    text += "! " + warning + "\n";
  return text;
}

TEST(ForeseeRails, ReturnsRangeTableAndGateway) {
  const ForesightScene scene(Mode::kShared);
  EXPECT_EQ(shown(scene),
            "net1 macvlan 10.0.0.1-10.0.0.3/16 by 10.0.0.1 table 100\n"
            "net2 macvlan 10.1.0.1-10.1.0.3/16 by 10.1.0.1 table 101\n");
}

TEST(ForeseeRails, RefusesWhatCreateRuntimeRefuses) {
  ForesightScene without_range(Mode::kShared);
  without_range.network().ranges.pop_back();
  EXPECT_EQ(shown(without_range), "`mlx5_1`: network `n` has address ranges, but none for rail 1");
  ForesightScene vf_of_pf(Mode::kExclusive);
  vf_of_pf.network().vf.vlan = 5;
  EXPECT_EQ(shown(vf_of_pf), "`mlx5_0` is no virtual function, and \"vf\" of network `n` requires one");
  ForesightScene default_route(Mode::kExclusive);
  default_route.inventory.routes = std::vector<fabric::Route>{{"default", "rail1"}};
  EXPECT_EQ(shown(default_route), "`mlx5_1`: its netdev `rail1` carries the node's default route");
}

TEST(ForeseeRails, NamesSourceOfAddresses) {
  ForesightScene carried(Mode::kExclusive);
  carried.network().ranges.clear();
  EXPECT_EQ(shown(carried),
            "net1 move 192.168.0.1/32 of netdev table 100\nnet2 move 192.168.1.1/32 of netdev table 101\n"
            "! addresses of kubelet and sshd on moving netdevs were not checked: a snapshot does not have them\n");
  ForesightScene plugin(Mode::kShared);
  plugin.network().ranges.clear();
  plugin.network().ipam = "{}";
  plugin.network().ipam_plugin = "/opt/cni/bin/host-local";
  EXPECT_EQ(shown(plugin), "net1 macvlan of host-local table 100\nnet2 macvlan of host-local table 101\n");
  ForesightScene nobody(Mode::kShared);
  nobody.network().ranges.clear();
  nobody.network().first_table.reset();
  const std::string remedy =
      "RoCE then has only IPv6 link-local addresses, if any; remedy: set \"addresses\" for the rail, or \"ipam\", in "
      "its "
      "network\n";
  EXPECT_EQ(shown(nobody),
            "net1 macvlan of \nnet2 macvlan of \n! no address for net1 (mlx5_0), net2 (mlx5_1): " + remedy);
  nobody.inventory.hcas[0].ports = {infiniband_port()};
  EXPECT_EQ(shown(nobody), "net1 macvlan of \nnet2 macvlan of \n! no address for net2 (mlx5_1): " + remedy);
  ForesightScene moved(Mode::kExclusive);
  moved.network().ranges.pop_back();
  moved.inventory.netdevs[1].addresses.clear();
  moved.inventory.routes.reset();
  EXPECT_TRUE(has_text(shown(moved), "net2 move of  table 101\n"));
  EXPECT_TRUE(has_text(shown(moved), "! no address for net2 (mlx5_1): " + remedy));
}

TEST(ForeseeRails, WarnsOfDataThatTheSnapshotLacks) {
  ForesightScene scene(Mode::kShared);
  scene.inventory.routes.reset();
  EXPECT_EQ(scene.foresee()->rails.size(), 2U) << "a child needs no routes";
  scene.inventory.netdevs.clear();
  EXPECT_EQ(shown(scene), "! the rails were not checked: the snapshot has no netdevs\n");
  ForesightScene moved(Mode::kExclusive);
  moved.inventory.routes.reset();
  EXPECT_EQ(shown(moved),
            "net1 move 10.0.0.1-10.0.0.3/16 by 10.0.0.1 table 100\n"
            "net2 move 10.1.0.1-10.1.0.3/16 by 10.1.0.1 table 101\n"
            "! not checked whether a moving netdev has the default route: the snapshot has no routes; remedy: make a "
            "new snapshot\n"
            "! addresses of kubelet and sshd on moving netdevs were not checked: a snapshot does not have them\n");
  moved.network().vf.vlan = 5;
  EXPECT_EQ(shown(moved), "`mlx5_0` is no virtual function, and \"vf\" of network `n` requires one");
  ForesightScene child(Mode::kShared);
  child.inventory.routes.reset();
  child.inventory.netdevs[1].mtu = 1500;
  child.network().mtu = 9000;
  EXPECT_EQ(shown(child), "`mlx5_1`: the MTU 9000 of network `n` is above the MTU 1500 of the parent `rail1`");
}

}  // namespace
}  // namespace hook
