#include "init/pending.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using namespace fabric;
using namespace init;
using namespace test_support;

// Pending resources. A start without a pending resource must not wait.

Netdev of_kind(Netdev device, const char* kind, int lower = 0, std::optional<int> netns = std::nullopt) {
  device.kind = kind;
  device.lower_ifindex = lower;
  device.lower_netns_id = netns;
  return device;
}

// A pod with these netdevs and one port, with only the host's GIDs in its table.
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

// Stacks the netdev on a netdev of the node.
Netdev child(std::initializer_list<std::string_view> addresses, const char* kind = "macvlan") {
  return of_kind(netdev("net1", addresses), kind, 70, 0);
}

TEST(Pending, WaitsForAGidOfAChildsAddress) {
  for (const char* kind : {"macvlan", "ipvlan", "macvtap", "vlan"})
    EXPECT_EQ(pending(pod({child({"10.0.0.1"}, kind)})), "a GID for 10.0.0.1 on mlx5_0:1") << kind;
  Inventory veth = pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)});
  veth.hcas[0].ports[0].netdev = "eth0";
  EXPECT_EQ(pending(veth), "a GID for 10.0.0.1 on mlx5_0:1") << "the port's own netdev";
  Inventory bond = pod({of_kind(netdev("eth1", {}), ""), of_kind(netdev("bond0", {"10.0.0.1"}), "bond")});
  bond.netdevs[0].master_ifindex = bond.netdevs[1].ifindex;
  bond.netdevs[0].master = "bond0";
  bond.hcas[0].ports[0].netdev = "eth1";
  EXPECT_EQ(pending(bond), "a GID for 10.0.0.1 on mlx5_0:1") << "a bond over the port";
}

TEST(Pending, WaitsForTheEndOfATestForDuplicates) {
  Inventory node = rails(1);
  node.hcas[0].ports[0].netdev = "rail0";
  for (fabric::InterfaceAddress& own : node.netdevs[1].addresses)
    own.tentative = true;
  EXPECT_EQ(pending(node), "a GID for 10.1.0.1 on mlx5_0:1");
  for (fabric::InterfaceAddress& own : node.netdevs[1].addresses)
    own.dad_failed = true;
  EXPECT_EQ(pending(node), "nothing") << "it has failed";
  Inventory peer = pod({child({"10.0.0.1"}, "macvlan")});
  peer.netdevs[0].addresses[0].peer = fabric::parse_address("10.0.0.2");
  EXPECT_EQ(pending(peer), "nothing") << "the GID is that of the peer";
}

TEST(Pending, IgnoresIwarp) {
  Inventory node = pod({child({"10.0.0.1"}, "macvlan")});
  Policy named;
  named.hcas = fabric::parse_selectors("mlx5_0").value();
  node.hcas[0].ports[0].netdev = "net1";
  ASSERT_NE(pending(node), "nothing");
  node.hcas[0].node_type = "4: RNIC";
  EXPECT_EQ(pending(node), "nothing");
  EXPECT_EQ(pending(node, named), "nothing");
}

// The IPv4 address will not be used.
TEST(Pending, IgnoresAnHcaWhoseProviderIsRejected) {
  Inventory node = pod({child({"10.0.0.1"}, "macvlan")});
  ASSERT_NE(pending(node), "nothing");
  node.hcas[0].abi_version = 6;
  node.hcas[0].provider = {"/usr/lib64/libibverbs/libbnxt_re-rdmav34.so", 1, 1};
  EXPECT_EQ(pending(node), "nothing");
}

TEST(Pending, WaitsForAGidOfTheKeptFamily) {
  Inventory node = rails(1);
  node.netdevs[1].addresses.push_back({*fabric::parse_address("fd00::1"), 64, {}});
  node.hcas[0].ports[0].netdev = "rail0";
  node.netdevs[1].ifindex = 3;
  node.netdevs[1].kind = "vlan";
  init::Settings settings = {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}};
  EXPECT_EQ(pending(node), "nothing");
  EXPECT_EQ(pending(node, {}, settings), "a GID for fd00::1 on mlx5_0:1");
  settings["NCCL_IB_GID_INDEX"] = {"3", "environment"};
  EXPECT_EQ(pending(node, {}, settings), "nothing") << "a fixed index voids the family";
  node.netdevs[1].addresses.pop_back();
  EXPECT_EQ(pending(node, {}, {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}}), "nothing")
      << "no address of the family can get a GID";
}

TEST(Pending, IgnoresNetdevsThatCannotBeOnThePort) {
  Netdev down = child({"10.0.0.1"});
  down.carrier = 0;
  Netdev elsewhere = child({"10.0.0.1"});
  elsewhere.in_this_netns = false;
  const auto changed = [](const std::function<void(Inventory&)>& change) {
    Inventory node = pod({child({"10.0.0.1"})});
    change(node);
    return node;
  };
  const std::pair<const char*, Inventory> rows[] = {
      {"veth", pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)})},
      {"bridge", pod({of_kind(netdev("br0", {"10.0.0.1"}), "bridge")})},
      {"tunnel", pod({of_kind(netdev("tun0", {"10.0.0.1"}), "vxlan")})},
      {"vlan over a veth of ours",
       pod({of_kind(netdev("eth0", {}), "veth", 9, 0), of_kind(netdev("eth0.5", {"10.0.0.1"}), "vlan", 2)})},
      {"down", pod({down})},
      {"another netns", pod({elsewhere})},
      {"no address", pod({child({})})},
      {"loopback address", pod({child({"127.0.0.1"})})},
      {"port down", changed([](Inventory& node) { node.hcas[0].ports[0].state = "1: DOWN"; })},
      {"no node", changed([](Inventory& node) { node.hcas[0].accessible = false; })},
      {"InfiniBand", changed([](Inventory& node) { node.hcas[0].ports[0] = test_support::infiniband_port(); })},
      {"its GID is on another port", changed([](Inventory& node) {
         node.hcas.push_back(test_support::hca("mlx5_1", 1, {test_support::ethernet_port({v2(7, "10.0.0.1")})}));
       })},
      {"no netdev", pod({})},
      {"a node that is ready", rails(8)},
      {"no HCA", {}}};
  for (const auto& [name, node] : rows)
    EXPECT_EQ(pending(node), "nothing") << name;
}

TEST(Pending, WaitsForAGlobalGidAfterALinkLocalOne) {
  Inventory node = pod({child({"10.0.0.1", "fe80::1"})});
  node.hcas[0].ports[0].gids.push_back(v2(5, "fe80::1"));
  EXPECT_EQ(pending(node), "a GID for 10.0.0.1 on mlx5_0:1") << "the netdev is on this port and has an address";
  node.netdevs[0] = child({"fe80::1"});
  EXPECT_EQ(pending(node), "nothing") << "the netdev has link-local addresses only";
  node.hcas[0].ports[0].gids.push_back(v2(6, "10.0.0.1"));
  EXPECT_EQ(pending(node), "nothing");
}

TEST(Pending, WaitsForRequiredHcas) {
  Policy policy;
  policy.require = 2;
  EXPECT_EQ(pending(rails(2), policy), "nothing");
  EXPECT_EQ(pending(rails(1), policy), "1 of 2 HCAs with a usable port");
  EXPECT_EQ(pending(Inventory{}, policy), "2 of 2 HCAs with a usable port") << "device nodes may appear later";
  Inventory down = rails(2);
  down.hcas[1].ports[0].state = "1: DOWN";
  EXPECT_EQ(pending(down, policy), "1 of 2 HCAs with a usable port") << "carrier may appear later";
  Inventory none;
  none.rdma_error = ENOENT;
  EXPECT_EQ(pending(none, policy), "nothing") << "without an RDMA driver no HCA appears";
  policy.require = 0;
  policy.require_used = 2;
  EXPECT_EQ(pending(rails(1), policy), "1 of 2 HCAs with a usable port");
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

TEST(Pending, WaitsForAnAddressInTheCidr) {
  const std::string awaited = "a GID on mlx5_0:1 (rail0) that the options allow";
  Inventory node = with_own_netdevs(1);
  EXPECT_EQ(pending(node, for_cidr("10.1.0.0/16")), "nothing");
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), awaited) << "a missing address may appear";
  node.hcas[0].ports[0].netdev.reset();
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), "nothing") << "its netdev is in another netns";

  node = with_own_netdevs(2);
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), "nothing") << "the other port has its addresses: a storage NIC";
  node.hcas[0].ports[0].gids.clear();
  node.netdevs[1].addresses.clear();
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), awaited) << "a port without an address is pending";
}

TEST(Pending, WaitsForAGidOfTheRequestedFamily) {
  Policy policy;
  policy.gids.family = fabric::Family::kIpv6;
  policy.gids.link_local = false;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "a GID on mlx5_0:1 (rail0) that the options allow");
  policy.gids.family = fabric::Family::kIpv4;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "nothing");
}

TEST(Pending, WaitsForTheNamedHcas) {
  Inventory node = with_own_netdevs(2);
  node.hcas[1].ports[0].gids.clear();
  node.netdevs[2].addresses.clear();
  Policy policy;
  EXPECT_EQ(pending(node, policy), "nothing") << "a missing address is pending only if requested";
  policy.hcas = *fabric::parse_selectors("mlx5_1");
  EXPECT_EQ(pending(node, policy), "a GID on mlx5_1:1 (rail1) that the options allow");
  policy.hcas = *fabric::parse_selectors("mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "the other HCA is not requested";
  policy.hcas = *fabric::parse_selectors("^mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "an exclude list requests no HCA";
  EXPECT_EQ(pending(pod({child({"10.0.0.1"})}), policy), "nothing") << "an excluded HCA is not pending";
}

}  // namespace
