// Every obstacle with its message and remedy, and the ranks and netdevs of candidates.
#include "init/candidates.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "fabric/port_faults.hpp"
#include "init/starter.hpp"
#include "support/inventories.hpp"

namespace {

using namespace fabric;
using namespace init;
using namespace test_support;

constexpr const char* kNetdevRemedy =
    "attach a netdev of this HCA to the container (macvlan, SR-IOV or host-device network), or use the host's network";
constexpr const char* kStateRemedy =
    "run `ip link set NETDEV up`; then check cable and the switch's port (`ethtool NETDEV`)";

TEST(Obstacles, HaveReasonAndRemedy) {
  const auto only_address = [](Inventory& node) -> fabric::InterfaceAddress& {
    node.netdevs[1].addresses.resize(1);
    return node.netdevs[1].addresses[0];
  };
  const auto port = [](Inventory& node) -> fabric::Port& { return node.hcas[0].ports[0]; };
  const auto cannot_open = [](std::optional<int> code) {
    return [code](Inventory& node) {
      node.hcas[0].accessible = false;
      node.hcas[0].access_error = code;
    };
  };
  const auto has_gids = [&](std::initializer_list<fabric::GidEntry> gids, std::size_t netdevs) {
    return [port, entries = std::vector(gids), netdevs](Inventory& node) {
      port(node).gids = entries;
      node.netdevs.resize(netdevs);
    };
  };
  const std::string no_netdev =
      "no netdev of this HCA in this network namespace, and its GID table has no GID of this namespace";
  const std::string foreign = "no GID of this network namespace: index 2 is 10.1.0.1, an address of another namespace";
  const std::string down = "GID 3 is 10.1.0.1 of rail0, which is down or has no carrier";
  const std::string rejected =
      "libibverbs rejects its provider /usr/lib64/libibverbs/libbnxt_re-rdmav34.so: it accepts kernel ABI 1 to 1, and "
      "the driver has 6";
  const auto reject = [](Inventory& node) {
    node.hcas[0].abi_version = 6;
    node.hcas[0].provider = {"/usr/lib64/libibverbs/libbnxt_re-rdmav34.so", 1, 1};
  };
  const std::string add_address = "assign an address to rail0 (`ip address add ADDRESS/LENGTH dev rail0`)";
  const auto infiniband_vf = [&](Inventory& node) {
    port(node) = test_support::infiniband_port();
    port(node).state = "2: INIT";
    node.hcas[0].node_guid = "0000:0000:0000:0000";
    node.hcas[0].physfn = "0000:99:00.0";
  };
  const std::string vf_remedy = fabric::inactive_remedy(fabric::InactiveCause::kNoGuid, {}, "", "PF");
  const std::string no_netlink = "open netlink socket (protocol 0): Operation not permitted";
  const struct {
    const char* name;
    Obstacle obstacle;
    std::string reason, remedy;
    std::function<void(Inventory&)> change;
  } rows[] = {
      {"usable", Obstacle::kNone, "", "", [](Inventory&) {}},
      {"an address of a down netdev, too", Obstacle::kNone, "", "",
       [](Inventory& node) {
         node.netdevs.insert(node.netdevs.begin(), netdev("twin", {"10.1.0.1"}));
         node.netdevs[0].carrier = 0;
       }},
      {"InfiniBand needs no GID", Obstacle::kNone, "", "",
       [&](Inventory& node) { port(node) = test_support::infiniband_port(); }},
      {"no uverbs", Obstacle::kNoNode, "the kernel has no uverbs node for it", "load the module ib_uverbs",
       [](Inventory& node) { node.hcas[0].uverbs.reset(); }},
      {"no node", Obstacle::kNoNode, "no device node /dev/infiniband/uverbs0 here", kNodeRemedy,
       cannot_open(std::nullopt)},
      {"no node, said by open", Obstacle::kNoNode, "no device node /dev/infiniband/uverbs0 here", kNodeRemedy,
       cannot_open(ENOENT)},
      {"cgroup", Obstacle::kRefused, "/dev/infiniband/uverbs0: the device cgroup refuses open", kCgroupRemedy,
       cannot_open(EPERM)},
      {"another netns in exclusive mode", Obstacle::kRefused,
       "/dev/infiniband/uverbs0: the HCA is in another network namespace (exclusive RDMA mode)",
       "use the host's network (enroot: without ENROOT_UNSHARE_NET), or let rdma-hook move the HCA",
       [&](Inventory& node) {
         cannot_open(EPERM)(node);
         node.hcas[0].is_elsewhere = true;
       }},
      {"mode", Obstacle::kRefused, "/dev/infiniband/uverbs0: no permission to open it as this user",
       "make the node's mode 0666, or run as its owner", cannot_open(EACCES)},
      {"device is a file", Obstacle::kRefused, "/dev/infiniband/uverbs0: Not a directory", kNodeRemedy,
       cannot_open(ENOTDIR)},
      {"down", Obstacle::kNotActive, "port state 1: DOWN (physical state 3: Disabled)", kStateRemedy,
       [&](Inventory& node) {
         port(node).state = "1: DOWN";
         port(node).phys_state = "3: Disabled";
       }},
      {"state unreadable", Obstacle::kNotActive, "port state ENODEV (physical state 5: LinkUp)", kStateRemedy,
       [&](Inventory& node) { port(node).state = Unreadable{ENODEV}; }},
      {"armed is not active", Obstacle::kNotActive, "port state 3: ARMED (physical state 5: LinkUp)", kStateRemedy,
       [&](Inventory& node) { port(node).state = "3: ARMED"; }},
      {"InfiniBand VF without GUID", Obstacle::kNoGuid,
       "port state 2: INIT (physical state 5: LinkUp): the VF has no GUID", vf_remedy,
       [&](Inventory& node) {
         infiniband_vf(node);
         port(node).sm_lid = "0x0";
       }},
      {"InfiniBand VF without GUID, and a subnet manager", Obstacle::kNoGuid,
       "port state 2: INIT (physical state 5: LinkUp): the VF has no GUID, and a subnet manager runs", vf_remedy,
       [&](Inventory& node) {
         infiniband_vf(node);
         port(node).sm_lid = "0x4";
       }},
      {"InfiniBand VF with GUID", Obstacle::kNotActive, "port state 2: INIT (physical state 5: LinkUp)",
       "check that the subnet manager runs and knows the port's GUID (`sminfo`)",
       [&](Inventory& node) {
         infiniband_vf(node);
         node.hcas[0].node_guid = "0000:0000:0000:0001";
       }},
      {"InfiniBand VF with GUID that the subnet manager does not serve", Obstacle::kNotActive,
       "port state 1: DOWN (physical state 5: LinkUp): the VF has no LID, although a subnet manager runs",
       fabric::inactive_remedy(fabric::InactiveCause::kUnserved, {}, "", "PF"),
       [&](Inventory& node) {
         infiniband_vf(node);
         node.hcas[0].node_guid = "0000:0000:0000:0001";
         port(node).state = "1: DOWN";
       }},
      {"RoCE VF without GUID that is down", Obstacle::kNotActive, "port state 1: DOWN (physical state 5: LinkUp)",
       kStateRemedy,
       [&](Inventory& node) {
         node.hcas[0].node_guid = "0000:0000:0000:0000";
         port(node).state = "1: DOWN";
       }},
      {"link layer", Obstacle::kLinkLayer, "link layer Unspecified: neither InfiniBand nor Ethernet", "",
       [&](Inventory& node) { port(node).link_layer = "Unspecified"; }},
      {"link layer unreadable", Obstacle::kLinkLayer, "link layer EINVAL: neither InfiniBand nor Ethernet", "",
       [&](Inventory& node) { port(node).link_layer = Unreadable{EINVAL}; }},
      {"provider of another ABI", Obstacle::kProvider, rejected, kProviderRemedy, reject},
      {"down, and provider of another ABI", Obstacle::kNotActive, "port state 1: DOWN (physical state 5: LinkUp)",
       kStateRemedy,
       [&](Inventory& node) {
         reject(node);
         port(node).state = "1: DOWN";
       }},
      {"foreign, and provider of another ABI", Obstacle::kProvider, rejected, kProviderRemedy,
       [&](Inventory& node) {
         reject(node);
         node.netdevs.resize(1);
       }},
      {"provider of the ABI", Obstacle::kNone, "", "",
       [&](Inventory& node) {
         reject(node);
         node.hcas[0].provider->max = 6;
       }},
      {"ABI not known", Obstacle::kNone, "", "",
       [&](Inventory& node) {
         reject(node);
         node.hcas[0].abi_version.reset();
       }},
      {"no netlink", Obstacle::kAddressesUnknown, "addresses of this network namespace are unknown: " + no_netlink,
       "allow AF_NETLINK sockets in the seccomp profile",
       [&](Inventory& node) {
         node.netdevs.clear();
         node.net_error = no_netlink;
       }},
      {"table unreadable", Obstacle::kTableUnreadable, "GID table cannot be read: No such device", "",
       [&](Inventory& node) {
         port(node).gids.clear();
         port(node).gids_error = ENODEV;
       }},
      {"empty table", Obstacle::kNoNetdev, no_netdev, kNetdevRemedy, has_gids({}, 1)},
      {"zero GIDs are no GIDs", Obstacle::kNoNetdev, no_netdev, kNetdevRemedy, has_gids({v2(0, "::")}, 1)},
      {"netdev without address", Obstacle::kNoAddress, "rail0 has no address", add_address,
       [&](Inventory& node) {
         port(node).gids.clear();
         port(node).netdev = "rail0";
         node.netdevs[1].addresses.clear();
       }},
      {"netdev without a GID for its address", Obstacle::kNoAddress, "no GID for an address of rail0", add_address,
       [&](Inventory& node) {
         port(node).gids.clear();
         port(node).netdev = "rail0";
       }},
      {"netdev without address, and a foreign address", Obstacle::kNoAddress,
       "rail0 has no address: GID 2 is 10.1.0.1, of another network namespace", add_address,
       [&](Inventory& node) {
         port(node).netdev = "rail0";
         node.netdevs[1].addresses.clear();
       }},
      {"netdev without address, by its name", Obstacle::kNoAddress,
       "rail0 has no address: the port has only the default GIDs of its MAC address", add_address,
       [&](Inventory& node) {
         port(node).gids.resize(2);
         port(node).gids[0].ndev = port(node).gids[1].ndev = base::Attr<std::string>("rail0");
         node.netdevs[1].addresses.clear();
       }},
      {"a veth of that name without address", Obstacle::kNoNetdev, no_netdev, kNetdevRemedy,
       [&](Inventory& node) {
         port(node).gids.resize(2);
         port(node).gids[0].ndev = port(node).gids[1].ndev = base::Attr<std::string>("rail0");
         node.netdevs[1].addresses.clear();
         node.netdevs[1].kind = "veth";
       }},
      {"foreign", Obstacle::kForeign, foreign, kNetdevRemedy, [](Inventory& node) { node.netdevs.resize(1); }},
      {"foreign although the name is ours", Obstacle::kForeign, foreign, kNetdevRemedy,
       [&](Inventory& node) {
         port(node).gids[3].ndev = base::Attr<std::string>("eth0");
         node.netdevs.resize(1);
       }},
      {"no carrier", Obstacle::kNetdevDown, down, "check cable and the switch's port of rail0",
       [](Inventory& node) { node.netdevs[1].carrier = 0; }},
      {"down netdev", Obstacle::kNetdevDown, down, "ip link set rail0 up",
       [](Inventory& node) { node.netdevs[1].carrier = Unreadable{EINVAL}; }},
      {"type unreadable", Obstacle::kTypeUnreadable, "type of GID 3 (10.1.0.1) cannot be read, so it may be of RoCE v1",
       "let the container read all of /sys (ports/N/gid_attrs/types has the type)",
       has_gids({unreadable(3, "10.1.0.1", EINVAL)}, 2)},
      {"duplicate", Obstacle::kAddress, "GID 3 is 10.1.0.1 of rail0, which another host has too (dadfailed)",
       "assign another address to rail0",
       [&](Inventory& node) { only_address(node).tentative = only_address(node).dad_failed = true; }},
      {"tentative", Obstacle::kAddress,
       "GID 3 is 10.1.0.1 of rail0, and the test for duplicates has not ended (tentative)",
       "wait for it, or add the address with `nodad`", [&](Inventory& node) { only_address(node).tentative = true; }},
      {"peer", Obstacle::kAddress, "GID 3 is the peer of 10.1.0.9 on rail0, with which RDMA does not work",
       "assign an address without peer to rail0",
       [&](Inventory& node) {
         only_address(node).peer = address("10.1.0.1");
         only_address(node).address = address("10.1.0.9");
       }},
      {"GID of the other end of a peer", Obstacle::kForeign, foreign, kNetdevRemedy,
       [&](Inventory& node) { only_address(node).peer = address("10.1.0.9"); }},
      {"default GID without address", Obstacle::kNoAddress,
       "rail0 has no address: GID 7 is 192.168.9.9, of another network namespace", add_address,
       [&](Inventory& node) {
         port(node).gids = {v1(0, "fe80::5054:ff:fe12:3456"), v2(7, "192.168.9.9")};
         node.netdevs[1].mac = "52:54:00:12:34:56";
         node.netdevs[1].addresses.clear();
       }},
      {"only v1", Obstacle::kOnlyV1, "only RoCE v1 (or iWARP) GIDs, e.g. index 2", "switch the HCA to RoCE v2",
       has_gids({v1(2, "10.1.0.1")}, 2)}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Inventory node = rails(1);
    row.change(node);
    const auto candidates = find_candidates(node, {});
    ASSERT_EQ(candidates.size(), 1U);
    EXPECT_EQ(candidates[0].obstacle, row.obstacle);
    EXPECT_EQ(candidates[0].reason, row.reason);
    EXPECT_EQ(candidates[0].remedy, row.remedy);
    EXPECT_EQ(candidates[0].usable(), row.obstacle == Obstacle::kNone);
  }
}

TEST(Obstacles, NameAGidThatTheFilterRefuses) {
  using Cidrs = std::vector<fabric::Cidr>;
  const fabric::Cidr other = *fabric::parse_cidr("172.16.0.0/12");
  const Cidrs two = {other, *fabric::parse_cidr("10.1.0.0/16")};
  // The reason of a usable port is empty.
  const std::tuple<const char*, Cidrs, std::optional<fabric::Family>, bool, std::string> rows[] = {
      {"cidr", Cidrs{other}, std::nullopt, true, "no GID that the options allow (172.16.0.0/12): it has 10.1.0.1"},
      {"cidr and family", Cidrs{other}, fabric::Family::kIpv4, false,
       "no GID that the options allow (172.16.0.0/12, IPv4, not link-local): it has 10.1.0.1"},
      {"any of two", two, std::nullopt, true, ""},
      {"family 6 has link-local", Cidrs(), fabric::Family::kIpv6, true, ""},
      {"family 6 without link-local", Cidrs(), fabric::Family::kIpv6, false,
       "no GID that the options allow (IPv6, not link-local): it has 10.1.0.1"}};
  for (const auto& [name, cidrs, family, link_local, reason] : rows) {
    SCOPED_TRACE(name);
    const Inventory node = rails(1);
    const auto candidates = find_candidates(node, GidFilter{cidrs, family, link_local});
    EXPECT_EQ(candidates[0].usable(), reason.empty());
    EXPECT_EQ(candidates[0].reason, reason);
  }
}

TEST(Candidates, PreferTheLowestIndexOfTheBestRank) {
  Inventory node = rails(1);
  node.netdevs[1] = netdev("rail0", {"10.1.0.1", "10.1.0.2", "fd00::1", "fe80::1"});
  node.hcas[0].ports[0].gids = {v2(0, "fe80::1"), v1(1, "10.1.0.1"), v2(2, "192.168.9.9"),
                                v2(4, "fd00::1"), v2(6, "10.1.0.2"), v2(8, "10.1.0.1")};
  const auto candidates = find_candidates(node, {});
  const init::Candidate& candidate = candidates[0];
  ASSERT_EQ(candidate.gids.size(), 4U);
  EXPECT_EQ(candidate.best(GidRank::kIpv4)->index, 6U);
  EXPECT_EQ(candidate.best(GidRank::kIpv6)->index, 4U);
  EXPECT_EQ(candidate.best(GidRank::kLinkLocal)->index, 0U);
  EXPECT_EQ(candidate.best(GidRank::kIpv4)->netdev, "rail0");
  EXPECT_EQ(candidate.name(), "mlx5_0:1");
}

TEST(Candidates, PreferAnAddressThatIsNotDeprecated) {
  Inventory node = rails(1);
  node.netdevs[1] = netdev("rail0", {"10.1.0.1", "10.1.0.2"});
  node.hcas[0].ports[0].gids = {v2(0, "10.1.0.1"), v2(1, "10.1.0.2")};
  node.netdevs[1].addresses[0].deprecated = true;
  EXPECT_EQ(find_candidates(node, {})[0].best()->index, 1U);
  node.netdevs[1].addresses[1].deprecated = true;
  EXPECT_EQ(find_candidates(node, {})[0].best()->index, 0U);
}

TEST(Candidates, HaveTheNamesOfTheirNetdevAndItsMasters) {
  using Names = std::vector<std::string>;
  Inventory node = rails(2);
  EXPECT_EQ(find_candidates(node, {})[0].netdevs, Names{"rail0"});
  node.hcas[0].ports[0].netdev = "pf0";
  node.netdevs.push_back(netdev("pf0", {}));
  node.netdevs.back().master = "bond0";
  node.netdevs.push_back(netdev("bond0", {}));
  EXPECT_EQ(find_candidates(node, {})[0].netdevs, (Names{"pf0", "rail0", "bond0"}));
  node.netdevs.back().master = "pf0";  // a loop of masters
  EXPECT_EQ(find_candidates(node, {})[0].netdevs, (Names{"pf0", "rail0", "bond0"}));
}

TEST(Candidates, HaveANetdevPerPortAndCountAsOneHca) {
  Inventory node = rails(3);
  node.hcas[0].ports.push_back(test_support::infiniband_port(2));
  node.hcas[1].accessible = false;
  node.netdevs.push_back(netdev("ib1", {}));
  node.netdevs.back().pci = node.hcas[0].pci;
  node.netdevs.back().dev_port = 1;
  const auto candidates = find_candidates(node, {});
  ASSERT_EQ(candidates.size(), 4U);
  EXPECT_EQ(candidates[1].netdevs, (std::vector<std::string>{"ib1"}));
  EXPECT_EQ(init::count_usable_hcas(candidates), 2U);
}

}  // namespace
