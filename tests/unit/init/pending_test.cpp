// What is waited for, and above all what is not: a start without anything on its way costs no wait.
#include "init/resolve.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "support/inventories.hpp"

namespace {

using fabric::Inventory;
using fabric::Netdev;
using init::find_pending;
using init::Policy;
using test_support::address;
using test_support::netdev;
using test_support::rails;
using test_support::v2;

Netdev of_kind(Netdev device, const char* kind, int lower = 0, std::optional<int> netns = std::nullopt) {
  device.kind = kind;
  device.lower_ifindex = lower;
  device.lower_netns_id = netns;
  return device;
}

// A pod with one port whose table has only the host's GIDs, and these netdevs.
Inventory pod(std::vector<Netdev> netdevs) {
  Inventory node;
  node.hcas = {
      test_support::hca("mlx5_0", 0, {test_support::ethernet_port({v2(0, "fe80::99"), v2(3, "192.168.9.9")})})};
  int ifindex = 2;
  for (Netdev& device : netdevs)
    device.ifindex = ifindex++;
  node.netdevs = std::move(netdevs);
  return node;
}

std::string pending(const Inventory& node, const Policy& policy = {}, const init::Settings& settings = {}) {
  return find_pending(node, settings, policy).value_or("nothing");
}

TEST(Pending, NothingIsAwaitedOnAReadyNode) {
  EXPECT_EQ(pending(rails(8)), "nothing");
  EXPECT_EQ(pending(Inventory{}), "nothing");
}

TEST(Pending, AGidForAnAddressOfAMacvlan) {
  const Netdev net1 = of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0);
  EXPECT_EQ(pending(pod({net1})), "a GID for 10.0.0.1 on mlx5_0:1");
  for (const char* kind : {"ipvlan", "macvtap", "vlan"}) {
    Netdev other = net1;
    other.kind = kind;
    EXPECT_EQ(pending(pod({other})), "a GID for 10.0.0.1 on mlx5_0:1") << kind;
  }
}

// The IPv4 address is not what will be used.
TEST(Pending, AGidOfTheFamilyThatIsSet) {
  Inventory node = rails(1);
  node.netdevs[1].addresses.push_back({*fabric::parse_address("fd00::1"), 64, {}});
  node.hcas[0].ports[0].netdev = "rail0";
  node.netdevs[1].ifindex = 3;
  node.netdevs[1].kind = "vlan";
  init::Settings settings = {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}};
  EXPECT_EQ(pending(node), "nothing");
  EXPECT_EQ(pending(node, {}, settings), "a GID for fd00::1 on mlx5_0:1");
  settings["NCCL_IB_GID_INDEX"] = {"3", "environment"};
  EXPECT_EQ(pending(node, {}, settings), "nothing") << "it voids the family";
  node.netdevs[1].addresses.pop_back();
  EXPECT_EQ(pending(node, {}, {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}}), "nothing") << "none can come";
}

TEST(Pending, WhatCannotBeOverThePortIsNotAwaited) {
  struct Row {
    const char* name;
    Inventory node;
  };
  Netdev down = of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0);
  down.carrier = 0;
  Netdev elsewhere = of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0);
  elsewhere.in_this_netns = false;
  Inventory port_down = pod({of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0)});
  port_down.hcas[0].ports[0].state = "1: DOWN";
  Inventory no_node = pod({of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0)});
  no_node.hcas[0].accessible = false;
  Inventory infiniband = pod({of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0)});
  infiniband.hcas[0].ports[0] = test_support::infiniband_port();
  Inventory other_port = pod({of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0)});
  other_port.hcas.push_back(test_support::hca("mlx5_1", 1, {test_support::ethernet_port({v2(7, "10.0.0.1")})}));
  const std::vector<Row> rows = {
      {"veth", pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)})},
      {"bridge", pod({of_kind(netdev("br0", {"10.0.0.1"}), "bridge")})},
      {"tunnel", pod({of_kind(netdev("tun0", {"10.0.0.1"}), "vxlan")})},
      {"vlan over a veth of ours",
       pod({of_kind(netdev("eth0", {}), "veth", 9, 0), of_kind(netdev("eth0.5", {"10.0.0.1"}), "vlan", 2)})},
      {"down", pod({down})},
      {"another netns", pod({elsewhere})},
      {"no address", pod({of_kind(netdev("net1", {}), "macvlan", 70, 0)})},
      {"loopback address", pod({of_kind(netdev("net1", {"127.0.0.1"}), "macvlan", 70, 0)})},
      {"port down", port_down},
      {"no node", no_node},
      {"InfiniBand", infiniband},
      {"its GID is on another port", other_port},
      {"no netdev", pod({})},
  };
  for (const Row& row : rows)
    EXPECT_EQ(pending(row.node), "nothing") << row.name;
}

TEST(Pending, AVethCountsWhenItIsThePortsOwnNetdev) {
  Inventory node = pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)});
  node.hcas[0].ports[0].netdev = "eth0";
  EXPECT_EQ(pending(node), "a GID for 10.0.0.1 on mlx5_0:1");
}

TEST(Pending, ABondOverThePort) {
  Inventory node = pod({of_kind(netdev("eth1", {}), ""), of_kind(netdev("bond0", {"10.0.0.1"}), "bond")});
  node.netdevs[0].master_ifindex = node.netdevs[1].ifindex;
  node.netdevs[0].master = "bond0";
  node.hcas[0].ports[0].netdev = "eth1";
  EXPECT_EQ(pending(node), "a GID for 10.0.0.1 on mlx5_0:1");
}

TEST(Pending, ALinkLocalGidIsNotTheLastWord) {
  Inventory node = pod({of_kind(netdev("net1", {"10.0.0.1", "fe80::1"}), "macvlan", 70, 0)});
  node.hcas[0].ports[0].gids.push_back(v2(5, "fe80::1"));
  EXPECT_EQ(pending(node), "a GID for 10.0.0.1 on mlx5_0:1") << "it is over this port, and has an address";
  node.netdevs[0] = of_kind(netdev("net1", {"fe80::1"}), "macvlan", 70, 0);
  EXPECT_EQ(pending(node), "nothing") << "link-local is all it has";
  node.hcas[0].ports[0].gids.push_back(v2(6, "10.0.0.1"));
  EXPECT_EQ(pending(node), "nothing");
}

TEST(Pending, Require) {
  Policy policy;
  policy.require = 2;
  EXPECT_EQ(pending(rails(2), policy), "nothing");
  EXPECT_EQ(pending(rails(1), policy), "1 of 2 HCAs with a usable port");
  EXPECT_EQ(pending(Inventory{}, policy), "2 of 2 HCAs with a usable port") << "nodes may come too";
  Inventory down = rails(2);
  down.hcas[1].ports[0].state = "1: DOWN";
  EXPECT_EQ(pending(down, policy), "1 of 2 HCAs with a usable port") << "and carrier";
}

Policy for_cidr(const char* cidr) {
  Policy policy;
  policy.gids.cidrs = {*fabric::parse_cidr(cidr)};
  return policy;
}

Inventory with_own_netdevs(unsigned count) {
  Inventory node = rails(count);
  for (unsigned i = 0; i < count; ++i)
    node.hcas[i].ports[0].netdev = fmt::format("rail{}", i);
  return node;
}

TEST(Pending, AnAddressForTheCidr) {
  const std::string awaited = "a GID on mlx5_0:1 (rail0) that the options allow";
  Inventory node = with_own_netdevs(1);
  EXPECT_EQ(pending(node, for_cidr("10.1.0.0/16")), "nothing");
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), awaited) << "a missing address may come";
  node.hcas[0].ports[0].netdev.reset();
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), "nothing") << "its netdev is not here";

  node = with_own_netdevs(2);
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), "nothing") << "the other has its addresses: a storage NIC";
  node.hcas[0].ports[0].gids.clear();
  node.netdevs[1].addresses.clear();
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), awaited) << "a port without address is not settled";
}

TEST(Pending, Family) {
  Policy policy;
  policy.gids.family = fabric::Family::kIpv6;
  policy.gids.link_local = false;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "a GID on mlx5_0:1 (rail0) that the options allow");
  policy.gids.family = fabric::Family::kIpv4;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "nothing");
}

TEST(Pending, TheNamedHcas) {
  Inventory node = with_own_netdevs(2);
  node.hcas[1].ports[0].gids.clear();
  node.netdevs[2].addresses.clear();
  Policy policy;
  EXPECT_EQ(pending(node, policy), "nothing") << "an address that is not there is awaited only when asked for";
  policy.hcas = *fabric::parse_selectors("mlx5_1");
  EXPECT_EQ(pending(node, policy), "a GID on mlx5_1:1 (rail1) that the options allow");
  policy.hcas = *fabric::parse_selectors("mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "the other is not asked for";
  policy.hcas = *fabric::parse_selectors("^mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "leaving some out asks for none";
}

TEST(Pending, WhatIsLeftOutIsNotAwaited) {
  Inventory node = pod({of_kind(netdev("net1", {"10.0.0.1"}), "macvlan", 70, 0)});
  Policy policy;
  policy.hcas = *fabric::parse_selectors("^mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing");
}

}  // namespace
