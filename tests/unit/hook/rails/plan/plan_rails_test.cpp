// Rails that are planned from netdevs, netdevs that must not leave the node, and the configuration of rails.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstdio>

#include "hook/rails/plan/plan_rails.hpp"
#include "support/inventories.hpp"
#include "unit/hook/rails/network_scene.hpp"

namespace hook {
namespace {

using base::netlink::Message;
using namespace test_support;
using Services = std::map<fabric::Address, std::string>;
using Strings = std::vector<std::string>;

// Two RoCE rails, mlx5_0 on rail0 and mlx5_1 on rail1, and a plan with both in one mode of network n.
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
    hca.ports = {infiniband_port()};
  for (fabric::Netdev& netdev : one.node.netdevs)
    netdev.type = 32;
  return one;
}

std::vector<Rail> planned(const Scene& scene) {
  auto rails = plan_rails(scene.plan, scene.config, scene.inventory, scene.node);
  EXPECT_OK(rails);
  return rails ? *std::move(rails) : std::vector<Rail>(scene.plan.netdevs.size());
}

// Returns "MESSAGE; HINT" of a refusal; empty: the rails are planned.
std::string refused(const Scene& scene) {
  const auto rails = plan_rails(scene.plan, scene.config, scene.inventory, scene.node);
  return rails ? "" : rails.error().message + "; " + rails.error().hint;
}

TEST(PlanRails, PlansAChildOfEachNetdev) {
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
  Scene multi = scene(Mode::kSharedMulti);
  multi.network().child = "ipvlan";
  multi.network().first_table.reset();
  EXPECT_EQ(planned(multi)[0].kind, RailKind::kIpvlan);
  EXPECT_EQ(planned(multi)[0].table, std::nullopt);
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

TEST(PlanRails, RecreatesSoftwareDevices) {
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

struct RefusedCase {
  const char* name;
  Scene scene;
  std::function<void(Scene&)> change;
  std::string expected;  // "": the rails are planned
};

void expect_refused(const std::vector<RefusedCase>& cases) {
  for (const RefusedCase& row : cases) {
    Scene one = row.scene;
    row.change(one);
    EXPECT_EQ(refused(one), row.expected) << row.name;
  }
}

TEST(PlanRails, KeepsNetdevsThatTheNodeNeeds) {
  const std::string share = "use mode shared with \"child\": \"ipvlan\" in network `n`";
  const std::string take =
      share + ", or set \"take_node_netdevs\": true in this network if the node does not need the netdev";
  const std::string enslaved =
      "`mlx5_0`: its netdev `rail0` has enslaved other netdevs and cannot move without them; " + share;
  const auto slave = [](Scene& one) { one.netdev(1).master = "bond0"; };
  const std::string of_bond =
      "`mlx5_1`: `bond0` has enslaved its netdev `rail1`, which can neither move nor take children; use mode hca, "
      "which "
      "adds only device nodes, or remove the netdev from its master";
  const auto stack = [](Scene& one) {
    one.add("vlan5", "vlan").lower_ifindex = 1;
    one.add("mv0", "macvlan").lower_ifindex = 3;
    one.node.routes = {{"0.0.0.0/0", "mv0"}};
  };
  const auto serve = [](Scene& one) {
    one.node.services = {{address("10.1.1.1"), "sshd"}, {address("10.9.9.9"), "kubelet"}};
  };
  std::vector<RefusedCase> cases = {
      {"other routes", scene(Mode::kExclusive),
       [](Scene& one) {
         one.node.routes = {{"10.1.0.0/24", "rail0"}, {"0.0.0.0/0", "rail0", 100}, {"0.0.0.0/0", "eth0"}};
       },
       ""},
      {"a netdev stacked on it", scene(Mode::kExclusive), stack,
       "`mlx5_0`: its netdev `rail0` is below `mv0`, which carries the node's default route; " + take},
      {"the other end of a veth is not below it", scene(Mode::kExclusive),
       [&](Scene& one) {
         stack(one);
         one.netdev(3).kind = "veth";
       },
       ""},
      {"an address by which the node is reached", scene(Mode::kExclusive), serve,
       "`mlx5_1`: its netdev `rail1` has 10.1.1.1, which sshd uses; " + take},
      {"an address that the node does not need", scene(Mode::kExclusive),
       [&](Scene& one) {
         serve(one);
         one.network().take_node_netdevs = true;
       },
       ""},
      {"a bond", scene(Mode::kExclusive),
       [](Scene& one) {
         one.network().take_node_netdevs = true;
         one.netdev(0).kind = "bond";
       },
       enslaved},
      {"a child of a bond", scene(Mode::kShared), [](Scene& one) { one.netdev(0).kind = "bond"; }, ""},
      {"a netvsc", scene(Mode::kExclusive), [](Scene& one) { one.add("enP1", "").master_ifindex = 1; }, enslaved},
      {"a slave", scene(Mode::kExclusive), slave, of_bond},
      {"a child of a slave", scene(Mode::kShared), slave, of_bond}};
  for (const char* destination : {"0.0.0.0/0", "::/0", "default"}) {
    const auto route = [=](Scene& one) { one.node.routes = {{destination, "rail1"}}; };
    cases.push_back({"a default route", scene(Mode::kExclusive), route,
                     "`mlx5_1`: its netdev `rail1` carries the node's default route; " + take});
    cases.push_back({"a default route that the node does not need", scene(Mode::kExclusive),
                     [=](Scene& one) {
                       route(one);
                       one.network().take_node_netdevs = true;
                     },
                     ""});
    cases.push_back({"a child of a netdev with a default route", scene(Mode::kShared), route, ""});
  }
  expect_refused(cases);
}

TEST(PlanRails, RefusesRailsThatTheNetworkCannotProvide) {
  const auto of_rail_0 = [](Scene& one) {
    one.network().ranges.resize(1);
    one.network().ranges[0].rail = 0;
  };
  const auto one_netdev = [](Scene& one) { one.plan.netdevs[1].host = "rail0"; };
  const std::string moves_once =
      "`mlx5_0` and `mlx5_1` share the netdev `rail0`, which can move only once; request only one of these HCAs, or "
      "use mode shared";
  expect_refused(
      {{"children in exclusive mode", scene(Mode::kShared),
        [](Scene& one) { one.inventory.netns_mode = fabric::NetnsMode::kExclusive; },
        "`mlx5_0`: the RDMA subsystem is in exclusive mode, in which a container cannot use the HCA of a child netdev; "
        "set `options ib_core netns_mode=1` in /etc/modprobe.d, rebuild the initramfs if it has ib_core, and reboot; "
        "or "
        "use mode exclusive"},
       {"macvlan of IPoIB", infiniband(Mode::kShared), [](Scene& one) { one.network().child = "macvlan"; },
        "`mlx5_0`: its netdev `rail0` is IPoIB, which takes no macvlan children; set \"child\": \"ipoib\" in network "
        "`n`"},
       {"ipvlan of IPoIB", infiniband(Mode::kShared), [](Scene& one) { one.network().child = "ipvlan"; },
        "`mlx5_0`: its netdev `rail0` is IPoIB, which takes no ipvlan children; set \"child\": \"ipoib\" in network "
        "`n`"},
       {"ipoib of Ethernet", scene(Mode::kShared), [](Scene& one) { one.network().child = "ipoib"; },
        "`mlx5_0`: its netdev `rail0` is Ethernet, which takes no ipoib children; set \"child\": \"macvlan\" in "
        "network "
        "`n`"},
       {"an MTU as its netdev's", scene(Mode::kShared), [](Scene& one) { one.network().mtu = 9000; }, ""},
       {"an MTU above its netdev's", scene(Mode::kShared), [](Scene& one) { one.network().mtu = 9001; },
        "`mlx5_0`: the MTU 9001 of network `n` is above the MTU 9000 of the parent `rail0`; run `ip link set rail0 mtu "
        "9001`, or set a lower \"mtu\""},
       {"ranges of other rails only", scene(Mode::kShared), of_rail_0,
        "`mlx5_1`: network `n` has address ranges, but none for rail 1; add a range with \"rail\": 1, or one without "
        "\"rail\""},
       {"a range of every rail as well", scene(Mode::kShared),
        [&](Scene& one) {
          of_rail_0(one);
          one.network().ranges.emplace_back();
        },
        ""},
       {"a table that the kernel has", scene(Mode::kShared), [](Scene& one) { one.network().first_table = 252; },
        "network `n`: rail 1 of the container cannot use routing table 253: the kernel reserves it, or it is too "
        "large; set "
        "\"first_table\": 100"},
       {"a table beyond all", scene(Mode::kShared), [](Scene& one) { one.network().first_table = UINT32_MAX; },
        "network `n`: rail 1 of the container cannot use routing table 4294967296: the kernel reserves it, or it is "
        "too "
        "large; set "
        "\"first_table\": 100"},
       {"one table for two networks", scene(Mode::kShared),
        [](Scene& one) {
          one.network().first_table = 101;
          one.config.networks["m"] = Network{};
          one.plan.netdevs[1].network = "m";
        },
        "`mlx5_0` and `mlx5_1`: both would use routing table 101; set the same \"first_table\" in both networks, or "
        "numbers "
        "far "
        "apart"},
       {"one netdev that moves twice", scene(Mode::kExclusive), one_netdev, moves_once},
       {"one netdev that moves and has children", scene(Mode::kExclusive),
        [&](Scene& one) {
          one_netdev(one);
          one.plan.netdevs[1].mode = Mode::kShared;
        },
        moves_once},
       {"two children of one netdev", scene(Mode::kShared), one_netdev, ""},
       {"a netdev that is gone", scene(Mode::kShared), [](Scene& one) { one.plan.netdevs[0].host = "rail7\x1b"; },
        "`mlx5_0`: its netdev `rail7?` is not in the node's network namespace; move it to the node, or use mode hca, "
        "which needs no netdev"},
       {"an HCA that is gone", scene(Mode::kShared),
        [](Scene& one) { one.inventory.hcas.erase(one.inventory.hcas.begin()); }, "`mlx5_0` is gone; "},
       {"no HCA is requested", scene(Mode::kShared),
        [](Scene& one) {
          one.inventory.hcas.clear();
          one.plan.netdevs.clear();
        },
        ""}});
  Scene moved = scene(Mode::kExclusive);
  moved.network().mtu = 9001;
  EXPECT_EQ(planned(moved)[0].mtu, 9001U) << "the driver decides";
}

TEST(PlanRails, ChecksAttributesOfVirtualFunctions) {
  Scene one = scene(Mode::kExclusive);
  one.network().vf.vlan = 7;
  EXPECT_EQ(refused(one),
            "`mlx5_0` is no virtual function, and \"vf\" of network `n` requires one; use a pool of virtual functions, "
            "or a network without \"vf\"");
  one.inventory.hcas[0].physfn = one.inventory.hcas[1].physfn = "0000:10:00.0";
  EXPECT_EQ(planned(one)[0].vf.vlan, 7U);
  one.network().vf.node_guid = 1;
  EXPECT_EQ(refused(one),
            "`mlx5_0`: \"vf\" of network `n` has GUIDs, which only InfiniBand functions take; remove guids, node_guid "
            "and port_guid");
  one.network().vf = {};
  one.network().vf.mac = MacAddress{2, 0, 0, 0, 0, 1};
  EXPECT_EQ(refused(one),
            "`mlx5_0` and `mlx5_1` would have the same MAC address or GUID; set \"mac\" or a GUID in \"vf\" only if "
            "the network has a "
            "single function");
  one.plan.netdevs.pop_back();
  EXPECT_EQ(planned(one)[0].vf.mac, one.network().vf.mac);
  one.plan.netdevs[0].mode = Mode::kShared;
  EXPECT_EQ(
      refused(one),
      "`mlx5_0`: \"vf\" of network `n` requires mode exclusive, and this is mode shared; use mode exclusive, or a "
      "network without \"vf\"");
  Scene ib = infiniband(Mode::kExclusive);
  ib.plan.netdevs.pop_back();
  ib.inventory.hcas[0].physfn = "0000:10:00.0";
  ib.network().vf.node_guid = 1;
  ib.network().vf.link_state = 0;
  EXPECT_EQ(refused(ib), "");
  ib.network().vf.trust = false;
  EXPECT_EQ(refused(ib),
            "`mlx5_0`: \"vf\" of network `n` has attributes that InfiniBand functions do not have; use only guids, "
            "node_guid, port_guid and link_state");
}

TEST(RailNames, ParsesKindsMacsAndGuids) {
  for (const char* name : {"move", "macvlan", "ipvlan", "ipoib"})
    EXPECT_EQ(to_string(from_word(kRailKinds, name).value()), name);
  EXPECT_FALSE(from_word(kRailKinds, "veth"));
  EXPECT_EQ(to_string(parse_mac("02:aB:00:ff:7f:01").value()), "02:ab:00:ff:7f:01");
  for (const char* text : {"", "02:00:00:00:00", "02:00:00:00:00:00:00", "0g:00:00:00:00:00", "+2:00:00:00:00:00",
                           "2:00:00:00:00:00", "020:0:00:00:00:00", "02-00-00-00-00-00"})
    EXPECT_FALSE(parse_mac(text)) << text;
  EXPECT_EQ(parse_guid("00:11:22:33:44:55:66:fF"), 0x00112233445566ffU);
  EXPECT_FALSE(parse_guid("00:11:22:33:44:55:66"));
}

constexpr unsigned kPriority = 32000;

Strings texts(const std::vector<NetRecord>& records) {
  Strings all;
  for (const NetRecord& record : records)
    all.push_back(to_string(record));
  return all;
}

template <typename Header>
std::uint32_t number_of(const NetRecord& record, unsigned attribute) {
  return Message{record.type, record.payload}.attributes(sizeof(Header)).u32(attribute).value_or(0);
}

Rail rail_with(std::vector<RailAddress> addresses, std::optional<unsigned> table) {
  Rail rail;
  rail.name = "net1";
  rail.addresses = std::move(addresses);
  rail.table = table;
  return rail;
}

TEST(RailConfig, HasAddressesRoutesAndRules) {
  const RailAddress ipv4{address("10.1.7.77"), 20, address("10.1.0.1")};
  const RailAddress ipv6{address("fd00:7::77"), 61, address("fd00:7::1")};
  const struct {
    const char* name;
    std::vector<RailAddress> addresses;
    std::optional<unsigned> table;
    Strings made;
    Strings routes;
  } rows[] = {
      {"none", {}, 100, {}, {}},
      {"no table of its own", {ipv4, ipv6}, std::nullopt, {"10.1.7.77/20", "fd00:7::77/61"}, {}},
      {"a table",
       {ipv4},
       100,
       {"10.1.7.77/20"},
       {"10.1.0.0/20 table 100 scope link src 10.1.7.77", "default via 10.1.0.1 table 100 src 10.1.7.77",
        "from 10.1.7.77 lookup 100"}},
      {"no gateway",
       {{address("10.1.7.77"), 24, std::nullopt}},
       1000,
       {"10.1.7.77/24"},
       {"10.1.7.0/24 table 1000 scope link src 10.1.7.77", "from 10.1.7.77 lookup 1000"}},
      {"a host's prefix",
       {{address("10.1.7.77"), 32, std::nullopt}},
       100,
       {"10.1.7.77/32"},
       {"10.1.7.77 table 100 scope link src 10.1.7.77", "from 10.1.7.77 lookup 100"}},
      {"IPv6",
       {ipv6},
       100,
       {"fd00:7::77/61"},
       {"fd00:7::/61 table 100 src fd00:7::77", "default via fd00:7::1 table 100 src fd00:7::77",
        "from fd00:7::77 lookup 100"}},
      {"both families",
       {{address("10.1.7.77"), 24, std::nullopt}, {address("fd00::1"), 128, std::nullopt}},
       100,
       {"10.1.7.77/24", "fd00::1/128"},
       {"10.1.7.0/24 table 100 scope link src 10.1.7.77", "from 10.1.7.77 lookup 100", "fd00::1 table 100 src fd00::1",
        "from fd00::1 lookup 100"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto config = configure_rail(rail_with(row.addresses, row.table), 5, kPriority, {});
    EXPECT_EQ(texts(config.addresses), row.made);
    EXPECT_EQ(texts(config.routes), row.routes);
  }
}

TEST(RailConfig, UsesIndexOfItsNetdevAndItsOwnTable) {
  const auto config =
      configure_rail(rail_with({{address("10.1.7.77"), 24, address("10.1.7.1")}}, 100), 5, kPriority, {});
  ASSERT_EQ(config.routes.size(), 3U);
  EXPECT_EQ(reinterpret_cast<const ifaddrmsg*>(config.addresses[0].payload.data())->ifa_index, 5U);
  EXPECT_EQ(number_of<rtmsg>(config.routes[0], RTA_OIF), 5U);
  EXPECT_EQ(number_of<rtmsg>(config.routes[1], RTA_OIF), 5U);
  EXPECT_EQ(number_of<fib_rule_hdr>(config.routes[2], FRA_PRIORITY), kPriority);
  const auto flags = [](std::optional<unsigned> table) {
    const auto made = configure_rail(rail_with({{address("fd00::1"), 64, std::nullopt}}, table), 5, kPriority, {});
    return number_of<ifaddrmsg>(made.addresses.at(0), IFA_FLAGS);
  };
  EXPECT_EQ(flags(std::nullopt), std::uint32_t{IFA_F_NODAD});
  EXPECT_EQ(flags(100), std::uint32_t{IFA_F_NODAD | IFA_F_NOPREFIXROUTE});
}

TEST(RailConfig, KeepsRecordsOfTheMovedNetdev) {
  RouteSpec route;
  route.ifindex = 3;
  route.gateway = address("10.1.7.1");
  const std::vector<NetRecord> carried = {address_record(3, address("10.1.7.2"), 24),
                                          address_record(3, address("fd00::2"), 64), route_record(route),
                                          rule_record(address("10.1.7.2"), 70, 5)};
  const auto config = configure_rail(rail_with({}, std::nullopt), 9, kPriority, carried);
  EXPECT_EQ(texts(config.addresses), (Strings{"10.1.7.2/24", "fd00::2/64"}));
  EXPECT_EQ(texts(config.routes), (Strings{"default via 10.1.7.1", "from 10.1.7.2 lookup 70"}));
  EXPECT_EQ(number_of<rtmsg>(config.routes.at(0), RTA_OIF), 9U);
  EXPECT_EQ(number_of<fib_rule_hdr>(config.routes.at(1), FRA_PRIORITY), 5U);
  // A table of its own adds routes and rules.
  const auto tabled = configure_rail(rail_with({}, 101), 9, kPriority, carried);
  EXPECT_EQ(texts(tabled.addresses), (Strings{"10.1.7.2/24", "fd00::2/64"}));
  EXPECT_EQ(texts(tabled.routes),
            (Strings{"default via 10.1.7.1", "from 10.1.7.2 lookup 70", "10.1.7.0/24 table 101 scope link src 10.1.7.2",
                     "from 10.1.7.2 lookup 101", "fd00::/64 table 101 src fd00::2", "from fd00::2 lookup 101"}));
  // Addresses of config.json replace the records of the netdev.
  const auto own =
      configure_rail(rail_with({{address("10.2.0.2"), 16, std::nullopt}}, std::nullopt), 9, kPriority, carried);
  EXPECT_EQ(texts(own.addresses), Strings{"10.2.0.2/16"});
  EXPECT_EQ(texts(own.routes), Strings());
}

TEST(GidAddress, PrefersIpv4AndIgnoresLinkLocal) {
  const std::pair<Strings, const char*> rows[] = {{{}, "none"},
                                                  {{"10.1.0.2"}, "10.1.0.2"},
                                                  {{"fd00::2", "10.1.0.2"}, "10.1.0.2"},
                                                  {{"10.1.0.2", "10.1.0.3", "fd00::2"}, "10.1.0.2"},
                                                  {{"fe80::1", "fd00::2", "fd00::3"}, "fd00::2"},
                                                  {{"fe80::1"}, "none"},
                                                  {{"127.0.0.1", "::1"}, "none"}};
  for (const auto& [addresses, expected] : rows) {
    RailConfig config;
    for (const std::string& text : addresses)
      config.addresses.push_back(address_record(3, address(text), 32));
    const auto found = gid_address(config);
    EXPECT_EQ(found ? fabric::to_string(*found) : "none", expected) << testing::PrintToString(addresses);
  }
  RailConfig odd;
  odd.addresses.push_back(rule_record(address("10.1.0.2"), 1, 1));
  EXPECT_EQ(gid_address(odd), std::nullopt);
}

TEST(NameRails, UsesTheNextFreeNumber) {
  const struct {
    const char* pattern;
    Strings taken;
    unsigned rails;
    Strings expected;
  } rows[] = {{"net%d", {}, 0, {}},
              {"net%d", {}, 3, {"net1", "net2", "net3"}},
              {"net%d", {"lo", "eth0", "net2"}, 3, {"net1", "net3", "net4"}},
              {"net%d", {"net1", "net2", "net3"}, 1, {"net4"}},
              {"r%dx", {"r1", "r1x"}, 2, {"r2x", "r3x"}},
              {"%d%d", {}, 1, {"1%d"}},
              {"rdma", {"rdma"}, 1, {"rdma"}},
              {"net%d",
               {"net10"},
               12,
               {"net1", "net2", "net3", "net4", "net5", "net6", "net7", "net8", "net9", "net11", "net12", "net13"}}};
  for (const auto& row : rows) {
    std::vector<Rail> rails(row.rails);
    name_rails(row.pattern, row.taken, rails);
    Strings names;
    for (const Rail& rail : rails)
      names.push_back(rail.name);
    EXPECT_EQ(names, row.expected) << row.pattern;
  }
}

constexpr const char* kHeading =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
constexpr const char* kHeading6 =
    "  sl  local_address                         remote_address                        st tx_queue rx_queue tr "
    "tm->when retrnsmt   uid  timeout inode\n";

std::string line(const std::string& local, const std::string& remote, const std::string& state) {
  return "   0: " + local + " " + remote + " " + state +
         " 00000000:00000000 00:00000000 00000000     0        0 17 1 0000000000000000 100 0 0 10 0\n";
}

// Numbers as a little-endian host prints them: the tests run on such hosts only.
TEST(ServiceAddresses, FindsServicesOfIpv4) {
  const std::string ten = "0501000A";  // 10.0.1.5
  const Services sshd = {{address("10.0.1.5"), "sshd"}};
  const Services kubelet = {{address("10.0.1.5"), "kubelet"}};
  for (const auto& [what, lines, expected] : std::vector<std::tuple<const char*, std::string, Services>>{
           {"a session of ssh", line(ten + ":0016", "0902000A:C350", "01"), sshd},
           {"sshd listens on one address", line(ten + ":0016", "00000000:0000", "0A"), sshd},
           {"sshd listens on all", line("00000000:0016", "00000000:0000", "0A"), {}},
           {"loopback", line("0100007F:0016", "0100007F:C350", "01"), {}},
           {"a session that is over", line(ten + ":0016", "0902000A:C350", "06"), {}},
           {"a client of ssh on the node", line(ten + ":C350", "0902000A:0016", "01"), {}},
           {"kubelet answers", line(ten + ":280A", "0902000A:C350", "01"), kubelet},
           {"kubelet and the API server", line(ten + ":C350", "0902000A:192B", "01"), kubelet},
           {"a connection to an API server on the node", line(ten + ":192B", "0902000A:C350", "01"), {}},
           {"another port", line(ten + ":0050", "0902000A:C350", "01"), {}},
           {"both", line(ten + ":280A", "0902000A:C350", "01") + line(ten + ":0016", "0902000A:C351", "01"), sshd},
           {"both, the other way", line(ten + ":0016", "0902000A:C351", "01") + line(ten + ":280A", "0:0", "01"), sshd},
       }) {
    SCOPED_TRACE(what);
    EXPECT_EQ(service_addresses(kHeading + lines, ""), expected);
  }
}

TEST(ServiceAddresses, FindsServicesOfIpv6AndIgnoresMalformedLines) {
  const std::string any(32, '0');
  const std::string fd00 = "000000FD000000000000000005000000";    // fd00::5
  const std::string mapped = "0000000000000000FFFF00000501000A";  // ::ffff:10.0.1.5
  const std::string text = kHeading6 + line(any + ":0016", any + ":0000", "0A") +
                           line(fd00 + ":0016", fd00 + ":C350", "01") +
                           line(mapped + ":280A", "0000000000000000FFFF00000902000A:C350", "01") +
                           line("0000000000000000FFFF000000000000:0016", any + ":0000", "0A") +
                           line("0000000000000000FFFF00000100007F:0016", any + ":0000", "0A") +
                           line("00000000000000000000000001000000:0016", any + ":0000", "0A");
  EXPECT_EQ(service_addresses("", text), (Services{{address("fd00::5"), "sshd"}, {address("10.0.1.5"), "kubelet"}}));
  for (const char* none : {"", "\n", "   0:", "   0: 0501000A:0016", "   0: 0501000A:0016 0902000A:C350",
                           "   0: 0501000A:0016 0902000A:C350 0", "   0: 0501000A:00016 0902000A:C350 01 ",
                           "   0: 0501000:0016 0902000A:C350 01 ", "   0: 0501000A0016 0902000A:C350 01 ",
                           "   0: 050100-1:0016 0902000A:C350 01 ", "   0: 0501000A:0016 0902000A:C350 101 "})
    EXPECT_TRUE(service_addresses(none, none).empty()) << none;
  EXPECT_EQ(service_addresses("garbage\n" + line("0501000A:0016", "0902000A:C350", "01") + "   1: 06", "").size(), 1U)
      << "a last line that is cut off does not hide earlier lines";
}

class NodeNetworkTest : public NetnsTest {};

// Veth pairs as uplinks, a default route over two of them.
TEST_F(NodeNetworkTest, ReadsMultipathDefaultRoutes) {
  // NOLINTBEGIN(bugprone-command-processor,concurrency-mt-unsafe): fixed texts
  if (std::system("ip link add up0 type veth peer name far0 2>&1 && ip link add up1 type veth peer name far1") != 0)
    GTEST_SKIP() << "no veth here (root, ip)";
  ASSERT_EQ(std::system("set -e; ip addr add 192.0.2.1/25 dev up0; ip addr add 192.0.2.129/25 dev up1;ip addr add "
                        "2001:db8::1/64 dev up1 nodad; for n in lo up0 up1 far0 far1; do ip link set $n up;done; ip "
                        "route add default nexthop via 192.0.2.2 dev up0 nexthop via 192.0.2.130 dev up1;ip route add "
                        "default via 192.0.2.2 dev up0 table 100;ip -6 route add default via 2001:db8::2 dev up1"),
            0);
  // NOLINTEND(bugprone-command-processor,concurrency-mt-unsafe)
  const auto node = must(read_node_network(true));
  EXPECT_EQ(node.routes.size(), 3U);
  for (const auto& [destination, netdev] : {std::pair("0.0.0.0/0", "up0"), {"0.0.0.0/0", "up1"}, {"::/0", "up1"}})
    EXPECT_EQ(std::count(node.routes.begin(), node.routes.end(), fabric::Route{destination, netdev, 254}), 1) << netdev;
  EXPECT_EQ(node.netdevs.size(), 5U);
  EXPECT_TRUE(node.services.empty());
  EXPECT_EQ(must(read_node_network(false)).netdevs.size(), 5U);
}

}  // namespace
}  // namespace hook
