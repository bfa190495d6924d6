// What the netdevs of a plan become, and what may not leave the node.
#include "hook/rails/plan/rails.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cstdint>

#include "support/inventories.hpp"

namespace hook {
namespace {

using test_support::address;
using test_support::rails;

// Two RoCE rails, mlx5_0 on rail0 and mlx5_1 on rail1, and the plan that gives both in one mode of network n.
struct Scene {
  Plan plan;
  Config config;
  fabric::Inventory inventory = rails(2);
  NodeNetwork node;

  Network& network() { return config.networks.at("n"); }
  fabric::Netdev& netdev(std::size_t number) { return node.netdevs.at(number); }
  fabric::Netdev& add(std::string name, std::string kind) {
    fabric::Netdev netdev = test_support::netdev(std::move(name), {});
    netdev.ifindex = static_cast<int>(node.netdevs.size()) + 1;
    netdev.kind = std::move(kind);
    return node.netdevs.emplace_back(std::move(netdev));
  }
};

Scene scene(Mode mode) {
  Scene scene;
  Network network;
  network.name = "n";
  scene.config.networks["n"] = network;
  for (unsigned i = 0; i < 2; ++i) {
    scene.plan.netdevs.push_back(
        {fmt::format("rail{}", i), fmt::format("net{}", i + 1), mode, fmt::format("mlx5_{}", i), i, "n"});
    fabric::Netdev netdev = test_support::netdev(fmt::format("rail{}", i), {fmt::format("10.1.{}.1", i)});
    netdev.ifindex = static_cast<int>(i) + 1;
    scene.node.netdevs.push_back(netdev);
  }
  return scene;
}

// InfiniBand: both ports, both netdevs.
Scene infiniband(Mode mode) {
  Scene one = scene(mode);
  one.network().child = "ipoib";
  for (fabric::Hca& hca : one.inventory.hcas)
    hca.ports = {test_support::infiniband_port()};
  for (fabric::Netdev& netdev : one.node.netdevs)
    netdev.type = 32;
  return one;
}

std::vector<Rail> planned(const Scene& scene) {
  auto rails = plan_rails(scene.plan, scene.config, scene.inventory, scene.node);
  EXPECT_TRUE(rails) << rails.error().message;
  return rails ? *std::move(rails) : std::vector<Rail>(scene.plan.netdevs.size());
}

// "MESSAGE; HINT", empty: it is planned.
std::string refused(const Scene& scene) {
  const auto rails = plan_rails(scene.plan, scene.config, scene.inventory, scene.node);
  return rails ? "" : rails.error().message + "; " + rails.error().hint;
}

constexpr const char* kShare =
    "mode shared with \"child\": \"ipvlan\" in network `n` gives the container a child of it";
constexpr const char* kTake = "; \"take_node_netdevs\": true there if the node can do without";

TEST(PlanRails, AChildOfEach) {
  Scene one = scene(Mode::kShared);
  one.network().macvlan_private = true;
  one.network().mtu = 4200;
  const auto rails = planned(one);
  Rail expected;
  expected.rail = 1;
  expected.hca = "mlx5_1";
  expected.host = "rail1";
  expected.name = "net2";
  expected.kind = RailKind::kMacvlan;
  expected.macvlan_private = true;
  expected.mtu = 4200;
  expected.table = 101;
  ASSERT_EQ(rails.size(), 2U);
  EXPECT_EQ(rails[1], expected);
  EXPECT_EQ(rails[0].table, 100U);
}

TEST(PlanRails, KindsOfChildren) {
  Scene one = scene(Mode::kSharedMulti);
  one.network().child = "ipvlan";
  one.network().first_table.reset();
  EXPECT_EQ(planned(one)[0].kind, RailKind::kIpvlan);
  EXPECT_EQ(planned(one)[0].table, std::nullopt);
  Scene ib = infiniband(Mode::kShared);
  ib.network().pkey = std::uint16_t{0x8001};
  EXPECT_EQ(planned(ib)[0].kind, RailKind::kIpoib);
  EXPECT_EQ(planned(ib)[0].pkey, 0x8001);
}

TEST(PlanRails, MovesTheNetdev) {
  Scene one = scene(Mode::kExclusive);
  one.network().pkey = std::uint16_t{0x8001};
  EXPECT_EQ(planned(one)[0].kind, RailKind::kMove);
  EXPECT_FALSE(planned(one)[0].move_rdma);
  EXPECT_EQ(planned(one)[0].recreate, std::nullopt);
  EXPECT_EQ(planned(one)[0].pkey, std::nullopt);
  one.inventory.netns_mode = fabric::NetnsMode::kShared;
  EXPECT_FALSE(planned(one)[0].move_rdma);
  one.inventory.netns_mode = fabric::NetnsMode::kExclusive;
  EXPECT_TRUE(planned(one)[0].move_rdma);
  EXPECT_TRUE(planned(infiniband(Mode::kExclusive))[0].addresses.empty());
}

TEST(PlanRails, SoftwareDevicesAreMadeAnew) {
  struct Row {
    const char* name;
    std::optional<std::string> driver;
    const char* node_type;
    const char* expected;
  };
  for (const Row& row : std::vector<Row>{{"rxe0", std::nullopt, "1: CA", "rxe"},
                                         {"soft0", "rdma_rxe", "1: CA", "rxe"},
                                         {"siw0", std::nullopt, "4: RNIC", "siw"},
                                         {"soft0", std::nullopt, "4: RNIC", "siw"},
                                         {"soft0", "siw", "", "siw"}}) {
    SCOPED_TRACE(row.name);
    Scene one = scene(Mode::kExclusive);
    fabric::Hca& hca = one.inventory.hcas[0];
    hca.name = one.plan.netdevs[0].hca = row.name;
    hca.pci.reset();
    hca.driver = row.driver;
    hca.node_type = row.node_type;
    for (const auto mode : {fabric::NetnsMode::kShared, fabric::NetnsMode::kExclusive}) {
      one.inventory.netns_mode = mode;
      EXPECT_EQ(planned(one)[0].recreate, row.expected);
      EXPECT_FALSE(planned(one)[0].move_rdma);
    }
    one.inventory.netns_mode = fabric::NetnsMode::kShared;
    one.plan.netdevs[0].mode = Mode::kShared;
    EXPECT_EQ(planned(one)[0].recreate, std::nullopt) << "its netdev stays";
  }
}

TEST(PlanRails, TheDefaultRouteStays) {
  Scene one = scene(Mode::kExclusive);
  one.node.routes = {{"10.1.0.0/24", "rail0"}, {"0.0.0.0/0", "rail0", 100}, {"0.0.0.0/0", "eth0"}};
  EXPECT_EQ(refused(one), "");
  for (const char* destination : {"0.0.0.0/0", "::/0", "default"}) {
    one.node.routes.push_back({destination, "rail1"});
    EXPECT_EQ(refused(one),
              std::string("`mlx5_1`: its netdev `rail1` carries the node's default route; ") + kShare + kTake);
    one.network().take_node_netdevs = true;
    EXPECT_EQ(refused(one), "");
    one.network().take_node_netdevs = false;
    one.plan.netdevs[1].mode = Mode::kShared;
    EXPECT_EQ(refused(one), "") << "a child takes nothing away";
    one.plan.netdevs[1].mode = Mode::kExclusive;
    one.node.routes.pop_back();
  }
}

TEST(PlanRails, WhatIsStackedOnItStaysToo) {
  Scene one = scene(Mode::kExclusive);
  one.add("vlan5", "vlan").lower_ifindex = 1;
  one.add("mv0", "macvlan").lower_ifindex = 3;
  one.node.routes = {{"0.0.0.0/0", "mv0"}};
  const std::string expected =
      std::string("`mlx5_0`: its netdev `rail0` is below `mv0`, which carries the node's default route; ") + kShare +
      kTake;
  EXPECT_EQ(refused(one), expected);
  // The other end of a veth is not below it.
  one.netdev(3).kind = "veth";
  EXPECT_EQ(refused(one), "");
}

TEST(PlanRails, AddressesByWhichTheNodeIsReachedStay) {
  Scene one = scene(Mode::kExclusive);
  one.node.services = {{address("10.1.1.1"), "sshd"}, {address("10.9.9.9"), "kubelet"}};
  EXPECT_EQ(
      refused(one),
      std::string("`mlx5_1`: its netdev `rail1` has 10.1.1.1, by which sshd reaches the network; ") + kShare + kTake);
  one.network().take_node_netdevs = true;
  EXPECT_EQ(refused(one), "");
}

TEST(PlanRails, BondsAndTheirSlavesDoNotMove) {
  Scene one = scene(Mode::kExclusive);
  one.network().take_node_netdevs = true;
  one.netdev(0).kind = "bond";
  EXPECT_EQ(refused(one),
            std::string("`mlx5_0`: its netdev `rail0` has enslaved others, and cannot move without them; ") + kShare);
  one.plan.netdevs[0].mode = Mode::kShared;
  EXPECT_EQ(refused(one), "");

  Scene netvsc = scene(Mode::kExclusive);
  netvsc.add("enP1", "").master_ifindex = 1;
  EXPECT_EQ(refused(netvsc),
            std::string("`mlx5_0`: its netdev `rail0` has enslaved others, and cannot move without them; ") + kShare);

  for (const Mode mode : {Mode::kExclusive, Mode::kShared}) {
    Scene slave = scene(mode);
    slave.netdev(1).master = "bond0";
    EXPECT_EQ(refused(slave),
              "`mlx5_1`: `bond0` has enslaved its netdev `rail1`, which can neither move nor take children; mode hca "
              "gives the container the device nodes alone; or take the netdev out of its master");
  }
}

TEST(PlanRails, NoChildrenWhileTheRdmaSubsystemIsExclusive) {
  Scene one = scene(Mode::kShared);
  one.inventory.netns_mode = fabric::NetnsMode::kExclusive;
  EXPECT_EQ(refused(one),
            "`mlx5_0`: the RDMA subsystem is in exclusive mode, where a container sees HCAs of its own only, and not "
            "those of which its netdevs are children; `options ib_core netns_mode=1` in /etc/modprobe.d and a reboot; "
            "or mode exclusive");
}

TEST(PlanRails, ChildrenOfTheOtherLinkLayer) {
  Scene ib = infiniband(Mode::kShared);
  ib.network().child = "macvlan";
  EXPECT_EQ(refused(ib),
            "`mlx5_0`: its netdev `rail0` is IPoIB, which takes no macvlan children; \"child\": \"ipoib\" in network "
            "`n`");
  ib.network().child = "ipvlan";
  EXPECT_NE(refused(ib), "");
  Scene ethernet = scene(Mode::kShared);
  ethernet.network().child = "ipoib";
  EXPECT_EQ(refused(ethernet),
            "`mlx5_0`: its netdev `rail0` is Ethernet, which takes no ipoib children; \"child\": \"macvlan\" in "
            "network `n`");
}

TEST(PlanRails, MtuOfChildren) {
  Scene one = scene(Mode::kShared);
  one.network().mtu = 9000;
  EXPECT_EQ(refused(one), "");
  one.network().mtu = 9001;
  EXPECT_EQ(refused(one),
            "`mlx5_0`: the MTU 9001 of network `n` is above the 9000 of `rail0`, whose children it is for; ip link set "
            "rail0 mtu 9001, or a lower \"mtu\"");
  one = scene(Mode::kExclusive);
  one.network().mtu = 9001;
  EXPECT_EQ(planned(one)[0].mtu, 9001U) << "the driver decides";
}

TEST(PlanRails, RangesOfOtherRailsOnly) {
  Scene one = scene(Mode::kShared);
  AddressRange range;
  range.rail = 0;
  one.network().ranges = {range};
  EXPECT_EQ(refused(one),
            "`mlx5_1`: network `n` has addresses, and none for rail 1; a range with \"rail\": 1, or one without "
            "\"rail\"");
  range.rail.reset();
  one.network().ranges.push_back(range);
  EXPECT_EQ(refused(one), "");
}

TEST(PlanRails, AttributesOfFunctions) {
  Scene one = scene(Mode::kExclusive);
  one.network().vf.vlan = 7;
  EXPECT_EQ(refused(one),
            "`mlx5_0` is no virtual function, and \"vf\" of network `n` is for such; a pool of virtual functions only, "
            "or a network without it");
  one.inventory.hcas[0].physfn = one.inventory.hcas[1].physfn = "0000:10:00.0";
  EXPECT_EQ(planned(one)[0].vf.vlan, 7U);
  one.network().vf.node_guid = 1;
  EXPECT_EQ(
      refused(one),
      "`mlx5_0`: \"vf\" of network `n` has GUIDs, which only InfiniBand functions take; remove guids, node_guid and "
      "port_guid");
  one.network().vf = {};
  one.network().vf.mac = MacAddress{2, 0, 0, 0, 0, 1};
  EXPECT_EQ(refused(one),
            "`mlx5_0` and `mlx5_1` would have one MAC address or GUID; \"vf\" names one for a network of a single "
            "function only");
  one.plan.netdevs.pop_back();
  EXPECT_EQ(planned(one)[0].vf.mac, one.network().vf.mac);
  one.plan.netdevs[0].mode = Mode::kShared;
  EXPECT_EQ(refused(one),
            "`mlx5_0`: \"vf\" of network `n` is for functions that a container holds alone, and this is mode shared; "
            "mode exclusive, or a network without it");
}

TEST(PlanRails, AttributesOfInfinibandFunctions) {
  Scene one = infiniband(Mode::kExclusive);
  one.plan.netdevs.pop_back();
  one.inventory.hcas[0].physfn = "0000:10:00.0";
  one.network().vf.node_guid = 1;
  one.network().vf.link_state = 0;
  EXPECT_EQ(refused(one), "");
  one.network().vf.trust = false;
  EXPECT_EQ(
      refused(one),
      "`mlx5_0`: \"vf\" of network `n` has attributes that InfiniBand functions do not have; only guids, node_guid, "
      "port_guid and link_state");
}

TEST(PlanRails, Tables) {
  Scene one = scene(Mode::kShared);
  one.network().first_table = 252;
  const std::string reserved = "which is not to be had; \"first_table\": 100";
  EXPECT_EQ(refused(one), "network `n`: rail 1 of the container would have table 253, " + reserved);
  one.network().first_table = UINT32_MAX;
  EXPECT_EQ(refused(one), "network `n`: rail 1 of the container would have table 4294967296, " + reserved);
  one.network().first_table = 101;
  one.config.networks["m"] = Network{};
  one.plan.netdevs[1].network = "m";
  EXPECT_EQ(refused(one),
            "`mlx5_0` and `mlx5_1`: their networks give both table 101; the same \"first_table\" in both networks, or "
            "numbers far apart");
}

TEST(PlanRails, OneNetdevMovesOnce) {
  Scene one = scene(Mode::kExclusive);
  one.plan.netdevs[1].host = "rail0";
  EXPECT_EQ(
      refused(one),
      "`mlx5_0` and `mlx5_1` have one netdev, `rail0`, which moves once; ask for one of them, or for mode shared");
  one.plan.netdevs[1].mode = Mode::kShared;
  EXPECT_NE(refused(one), "");
  one.plan.netdevs[0].mode = Mode::kShared;
  EXPECT_EQ(refused(one), "");
}

TEST(PlanRails, WhatIsGone) {
  Scene one = scene(Mode::kShared);
  one.plan.netdevs[0].host = "rail7\x1b";
  EXPECT_EQ(refused(one),
            "`mlx5_0`: its netdev `rail7?` is not in the node's network namespace; give it back to the node, or mode "
            "hca, which needs none");
  one = scene(Mode::kShared);
  one.inventory.hcas.erase(one.inventory.hcas.begin());
  EXPECT_EQ(refused(one), "`mlx5_0` is gone; ");
  one.plan.netdevs.clear();
  EXPECT_EQ(refused(one), "");
}

TEST(RailNames, KindsMacsAndGuids) {
  for (const char* name : {"move", "macvlan", "ipvlan", "ipoib"})
    EXPECT_EQ(to_string(parse_rail_kind(name).value()), name);
  EXPECT_FALSE(parse_rail_kind("veth"));
  EXPECT_EQ(to_string(parse_mac("02:aB:00:ff:7f:01").value()), "02:ab:00:ff:7f:01");
  for (const char* text : {"", "02:00:00:00:00", "02:00:00:00:00:00:00", "0g:00:00:00:00:00", "+2:00:00:00:00:00",
                           "2:00:00:00:00:00", "020:0:00:00:00:00", "02-00-00-00-00-00"})
    EXPECT_FALSE(parse_mac(text)) << text;
  EXPECT_EQ(parse_guid("00:11:22:33:44:55:66:fF"), 0x00112233445566ffU);
  EXPECT_FALSE(parse_guid("00:11:22:33:44:55:66"));
}

}  // namespace
}  // namespace hook
