#include "fabric/port_use.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using fabric::GidSearch;
using fabric::Netdev;
using test_support::address;
using test_support::netdev;

Netdev of_kind(std::string name, const char* kind, int ifindex, std::initializer_list<std::string_view> addresses) {
  Netdev device = netdev(std::move(name), addresses);
  device.kind = kind;
  device.ifindex = ifindex;
  return device;
}

// A netdev over another one of this netns, or over one of the netns with that id.
Netdev over(Netdev device, int lower, std::optional<int> netns = std::nullopt) {
  device.lower_ifindex = lower;
  device.lower_netns_id = netns;
  return device;
}

using Netdevs = std::vector<Netdev>;

TEST(StackedOn, FollowsVlansMacvlansAndBonds) {
  Netdevs netdevs = {of_kind("eth1", "", 1, {}),
                     over(of_kind("eth1.100", "vlan", 2, {}), 1),
                     over(of_kind("mv0", "macvlan", 3, {}), 2),
                     over(of_kind("veth0", "veth", 4, {}), 1),
                     of_kind("bond0", "bond", 5, {}),
                     over(of_kind("bond0.7", "vlan", 6, {}), 5),
                     of_kind("eth2", "", 7, {})};
  netdevs[0].master_ifindex = 5;
  netdevs[0].master = "bond0";
  const auto stacked = [&](std::size_t upper) { return fabric::is_stacked_on(netdevs, netdevs[upper], netdevs[0]); };
  EXPECT_TRUE(stacked(0)) << "itself";
  EXPECT_TRUE(stacked(1)) << "vlan";
  EXPECT_TRUE(stacked(2)) << "macvlan over vlan";
  EXPECT_FALSE(stacked(3)) << "a veth's link is its peer, not what carries it";
  EXPECT_TRUE(stacked(4)) << "the bond it is a slave of";
  EXPECT_TRUE(stacked(5)) << "vlan over that bond";
  EXPECT_FALSE(stacked(6)) << "an unrelated netdev";
}

TEST(StackedOn, ALoopInTheStackEnds) {
  const Netdevs netdevs = {over(of_kind("a", "vlan", 1, {}), 2), over(of_kind("b", "vlan", 2, {}), 1),
                           of_kind("c", "", 3, {})};
  EXPECT_FALSE(fabric::is_stacked_on(netdevs, netdevs[0], netdevs[2]));
  EXPECT_FALSE(fabric::leaves_netns(netdevs, netdevs[0]));
}

TEST(LeavesNetns, IsForStackedNetdevsWithTheLowerDeviceElsewhere) {
  const Netdevs netdevs = {over(of_kind("net1", "macvlan", 2, {}), 9, 0),
                           over(of_kind("net1.5", "vlan", 3, {}), 2),
                           over(of_kind("eth0", "veth", 4, {}), 9, 0),
                           over(of_kind("ip0", "ipvlan", 5, {}), 9, 0),
                           of_kind("br0", "bridge", 6, {}),
                           over(of_kind("tun0", "vxlan", 7, {}), 9, 0),
                           over(of_kind("here", "macvlan", 8, {}), 6)};
  const std::vector<bool> expected = {true, true, false, true, false, false, false};
  for (std::size_t i = 0; i < netdevs.size(); ++i)
    EXPECT_EQ(fabric::leaves_netns(netdevs, netdevs[i]), expected[i]) << netdevs[i].name;
}

TEST(GidSearch, EndsWithTheAddressesOfThePortsOwnNetdev) {
  const Netdevs netdevs = {of_kind("eth0", "veth", 2, {"192.168.0.2"}),
                           of_kind("rail0", "", 3, {"10.0.0.1", "fe80::1"}),
                           over(of_kind("rail0.5", "vlan", 4, {"10.5.0.1"}), 3)};
  GidSearch search(netdevs, "rail0");
  EXPECT_FALSE(search.complete());
  EXPECT_FALSE(search.any());
  search.found_v2(address("fe80::1"));
  EXPECT_TRUE(search.any());
  search.found_v2(address("10.0.0.1"));
  EXPECT_FALSE(search.complete()) << "the vlan's address is to come";
  search.found_v2(address("10.5.0.1"));
  EXPECT_TRUE(search.complete());
}

TEST(GidSearch, AForeignGidIsNoneOfOurs) {
  const Netdevs netdevs = {of_kind("rail0", "", 3, {"10.0.0.1"})};
  GidSearch search(netdevs, "rail0");
  search.found_v2(address("10.0.0.2"));
  EXPECT_FALSE(search.complete());
  EXPECT_FALSE(search.any());
}

TEST(GidSearch, AddressesOfOtherNetnssAndOfDownNetdevsAreNotAwaited) {
  Netdevs netdevs = {of_kind("rail0", "", 3, {"10.0.0.1"}), of_kind("rail0.5", "vlan", 4, {"10.5.0.1"}),
                     of_kind("other", "", 5, {"10.6.0.1"})};
  netdevs[1] = over(netdevs[1], 3);
  netdevs[1].carrier = 0;
  netdevs[2].in_this_netns = false;
  GidSearch search(netdevs, "rail0");
  search.found_v2(address("10.0.0.1"));
  EXPECT_TRUE(search.complete());
}

// Which of a pod's macvlans is over this port shows with the first GID of one; the others are then of no interest.
TEST(GidSearch, TheFirstMacvlanFoundDecidesTheGroup) {
  const Netdevs netdevs = {of_kind("eth0", "veth", 2, {"192.168.0.2"}),
                           over(of_kind("net1", "macvlan", 3, {"10.1.0.1", "fe80::1"}), 70, 0),
                           over(of_kind("net2", "macvlan", 4, {"10.2.0.1", "fe80::2"}), 71, 0)};
  GidSearch search(netdevs, std::nullopt);
  EXPECT_FALSE(search.complete()) << "either may be on this port";
  search.found_v2(address("fe80::2"));
  EXPECT_FALSE(search.complete());
  search.found_v2(address("10.2.0.1"));
  EXPECT_TRUE(search.complete());
}

TEST(GidSearch, TwoMacvlansOverOneDeviceAreOneGroup) {
  const Netdevs netdevs = {over(of_kind("net1", "macvlan", 3, {"10.1.0.1"}), 70, 0),
                           over(of_kind("net2", "macvlan", 4, {"10.2.0.1"}), 70, 0)};
  GidSearch search(netdevs, std::nullopt);
  search.found_v2(address("10.1.0.1"));
  EXPECT_FALSE(search.complete());
  search.found_v2(address("10.2.0.1"));
  EXPECT_TRUE(search.complete());
}

TEST(GidSearch, OneAddressOnTwoGroupsDecidesNothing) {
  const Netdevs netdevs = {over(of_kind("net1", "macvlan", 3, {"fe80::1", "10.1.0.1"}), 70, 0),
                           over(of_kind("net2", "macvlan", 4, {"fe80::1", "10.2.0.1"}), 71, 0)};
  GidSearch search(netdevs, std::nullopt);
  search.found_v2(address("fe80::1"));
  EXPECT_FALSE(search.complete());
  search.found_v2(address("10.2.0.1"));
  EXPECT_TRUE(search.complete());
}

TEST(GidSearch, OneLowerIndexInTwoNetnssIsTwoGroups) {
  const Netdevs netdevs = {over(of_kind("net1", "macvlan", 3, {"10.1.0.1"}), 70, 0),
                           over(of_kind("net2", "macvlan", 4, {"10.2.0.1"}), 70, 1)};
  GidSearch search(netdevs, std::nullopt);
  search.found_v2(address("10.1.0.1"));
  EXPECT_TRUE(search.complete());
}

// A pod with nothing but its veth can own no GID on a port whose netdev is elsewhere: nothing is read at all.
TEST(GidSearch, VethBridgeAndTunnelAreNoReasonToRead) {
  const Netdevs netdevs = {over(of_kind("eth0", "veth", 2, {"192.168.0.2"}), 9, 0),
                           of_kind("docker0", "bridge", 3, {"172.17.0.1"}), of_kind("t0", "vxlan", 4, {"10.9.0.1"})};
  EXPECT_TRUE(GidSearch(netdevs, std::nullopt).complete());
  EXPECT_FALSE(GidSearch(netdevs, "eth0").complete()) << "rxe over the veth: it is the port's own netdev";
}

// Without kinds (a file tree) every netdev may be over the port, so that nothing is missed.
TEST(GidSearch, WithoutStackingInformationEverythingIsAwaited) {
  const Netdevs netdevs = {netdev("eth0", {"192.168.0.2"}), netdev("net1", {"10.1.0.1"})};
  GidSearch search(netdevs, std::nullopt);
  search.found_v2(address("10.1.0.1"));
  EXPECT_FALSE(search.complete());
  search.found_v2(address("192.168.0.2"));
  EXPECT_TRUE(search.complete());
}

TEST(GidSearch, LoopbackIsNotAwaited) {
  Netdevs netdevs = {netdev("lo", {"127.0.0.1"})};
  netdevs[0].type = 772;
  EXPECT_TRUE(GidSearch(netdevs, std::nullopt).complete());
  EXPECT_TRUE(GidSearch({}, std::nullopt).complete());
}

TEST(GidSearch, ABondedSlaveAwaitsTheBondsAddresses) {
  Netdevs netdevs = {of_kind("eth1", "", 1, {}), of_kind("bond0", "bond", 5, {"10.0.0.1"})};
  netdevs[0].master_ifindex = 5;
  netdevs[0].master = "bond0";
  GidSearch search(netdevs, "eth1");
  EXPECT_FALSE(search.complete());
  search.found_v2(address("10.0.0.1"));
  EXPECT_TRUE(search.complete());
}

}  // namespace
