// Each step of the choice, its override, and the order of the steps.
#include "init/choice.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"
#include "support/lines_of.hpp"

namespace {

using fabric::Inventory;
using namespace init;
using test_support::lines_of;
using test_support::rails;

using Names = std::vector<std::string>;

struct Chosen {
  Names ports;
  Names reasons;  // "mlx5_0:1: reason" for each dropped port
  Choice choice;
};

Chosen choose(const Inventory& node, const char* hcas = nullptr, const char* kept = nullptr) {
  std::optional<fabric::SelectorList> selectors;
  std::optional<init::nccl::HcaList> list;
  if (hcas) selectors = *fabric::parse_selectors(hcas);
  if (kept) list = init::nccl::parse_hca_list(kept);
  const auto candidates = init::find_candidates(node, {});
  Chosen chosen;
  chosen.choice = choose_ports(node, candidates, selectors, list);
  for (const std::size_t i : chosen.choice.ports)
    chosen.ports.push_back(candidates[i].name());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool taken =
        std::find(chosen.choice.ports.begin(), chosen.choice.ports.end(), i) != chosen.choice.ports.end();
    EXPECT_EQ(taken, chosen.choice.drops[i].message.empty())
        << "every dropped port has a reason, and no chosen one has";
    if (!taken) chosen.reasons.push_back(candidates[i].name() + ": " + chosen.choice.drops[i].message);
  }
  return chosen;
}

void set_rate(Inventory& node, std::size_t index, const char* rate) {
  node.hcas[index].ports[0].rate = rate;
}

void make_infiniband(Inventory& node, std::size_t index, const char* rate = "400 Gb/sec (4X NDR)") {
  node.hcas[index].ports[0] = test_support::infiniband_port();
  set_rate(node, index, rate);
}

// Moves HCAs to functions of one slot.
void share_slot(Inventory& node, std::initializer_list<std::size_t> indices) {
  unsigned function = 0;
  for (const std::size_t index : indices)
    node.hcas[index].pci = fmt::format("0000:7f:00.{}", function++);
}

TEST(Choice, UsesAllUsablePorts) {
  Inventory node = rails(3);
  node.hcas[1].accessible = false;
  const Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_0:1", "mlx5_2:1"}));
  EXPECT_EQ(chosen.reasons, Names{"mlx5_1:1: no device node /dev/infiniband/uverbs1 here"});
  EXPECT_EQ(chosen.choice.rank, GidRank::kIpv4);
  EXPECT_TRUE(choose(Inventory{}).ports.empty());
}

TEST(Choice, ChoosesNoPortWithAnOpenEfaDevice) {
  Inventory node = rails(2);
  node.hcas[0].driver = "efa";
  node.hcas[0].ports[0].link_layer = "Unspecified";
  Chosen chosen = choose(node, "mlx5_1", "=mlx5_1");
  EXPECT_TRUE(chosen.choice.efa);
  EXPECT_EQ(chosen.reasons, (Names{"mlx5_0:1: EFA device: NCCL drives it through aws-ofi-nccl, not through NCCL_IB_*",
                                   "mlx5_1:1: an EFA device is the fabric of this machine"}));
  node.hcas[0].accessible = false;
  chosen = choose(node);
  EXPECT_FALSE(chosen.choice.efa) << "an EFA device that this container cannot open does not count";
  EXPECT_EQ(chosen.ports, Names{"mlx5_1:1"});
}

// Nodes with four HCAs on functions of one slot.
Inventory with_management() {
  Inventory node = rails(6);
  share_slot(node, {2, 3, 4, 5});
  return node;
}

TEST(Choice, SetsManagementFunctionsAside) {
  Inventory node = with_management();
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_0:1", "mlx5_1:1"}));
  EXPECT_EQ(chosen.reasons[0],
            "mlx5_2:1: NVSwitch management function (four or more HCAs of one PCI slot); --hca selects it");
  EXPECT_EQ(
      lines_of(chosen.choice.warnings),
      Names{"mlx5_2:1, mlx5_3:1, mlx5_4:1, mlx5_5:1 left out, because four or more HCAs of one PCI slot are usually "
            "NVSwitch management functions, though they have the link layer of the chosen ports and are no slower than "
            "these; --hca selects them"});
  EXPECT_EQ(choose(node, "mlx5_*").ports.size(), 6U) << "a list of ports to use overrides the heuristic";
  EXPECT_EQ(choose(node, "^mlx5_0").ports, Names{"mlx5_1:1"}) << "a list of ports to exclude does not";
  EXPECT_EQ(choose(node, nullptr, "=mlx5_2:1,mlx5_3:1").ports, (Names{"mlx5_2:1", "mlx5_3:1"}));
  for (std::size_t i = 2; i < 6; ++i)
    set_rate(node, i, "100 Gb/sec (4X EDR)");
  EXPECT_TRUE(choose(node).choice.warnings.empty()) << "slower ports cause no warning";
}

TEST(Choice, KeepsFunctionsThatOnlyLookLikeManagement) {
  Inventory vfs = with_management();
  for (std::size_t i = 2; i < 6; ++i)
    vfs.hcas[i].physfn = "0000:7f:00.0";
  EXPECT_EQ(choose(vfs).ports.size(), 6U) << "VFs of one card";

  Inventory dual = rails(6);
  share_slot(dual, {2, 3, 4});
  EXPECT_EQ(choose(dual).ports.size(), 6U) << "three functions";

  Inventory quad = rails(4);
  share_slot(quad, {0, 1, 2, 3});
  EXPECT_EQ(choose(quad).ports.size(), 4U) << "a quad-port NIC without other HCAs";

  Inventory partly = with_management();
  partly.hcas[5].accessible = false;
  EXPECT_EQ(choose(partly).ports.size(), 5U) << "only three functions are usable";

  Inventory subfunctions = rails(6);
  for (std::size_t i = 2; i < 6; ++i)
    subfunctions.hcas[i].pci = "0000:7f:00.0";
  EXPECT_EQ(choose(subfunctions).ports.size(), 6U) << "subfunctions of one function";
}

TEST(Choice, PrefersTheLinkLayerWithTheHigherRate) {
  Inventory node = rails(4);
  make_infiniband(node, 0);
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}));
  EXPECT_EQ(chosen.reasons,
            Names{"mlx5_0:1: NCCL cannot mix link layers, and Ethernet has the higher total rate (1200 to 400 Gb/s)"});
  make_infiniband(node, 1);
  chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_0:1", "mlx5_1:1"})) << "InfiniBand wins a tie";
  EXPECT_FALSE(chosen.choice.rank) << "InfiniBand needs no GID index";
  EXPECT_EQ(choose(node, "mlx5_1,mlx5_2,mlx5_3").ports, (Names{"mlx5_2:1", "mlx5_3:1"}))
      << "NCCL cannot mix link layers";
  EXPECT_EQ(choose(node, nullptr, "=mlx5_1,mlx5_2").ports, Names{"mlx5_1:1"})
      << "a kept list cannot mix link layers either";
}

TEST(Choice, UsesPortsOfTheHighestRate) {
  Inventory node = rails(3);
  set_rate(node, 1, "25 Gb/sec (1X EDR)");
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_0:1", "mlx5_2:1"}));
  EXPECT_EQ(chosen.reasons, Names{"mlx5_1:1: 25 Gb/s is below the highest rate, 400 Gb/s; --hca selects it"});
  EXPECT_EQ(choose(node, "mlx5_1,mlx5_2").ports, (Names{"mlx5_1:1", "mlx5_2:1"}));
  set_rate(node, 0, "2.5 Gb/sec (1X SDR)");
  set_rate(node, 2, "10 Gb/sec (1X QDR)");
  EXPECT_EQ(choose(node, "^mlx5_1").ports, Names{"mlx5_2:1"}) << "rates are compared as numbers";
  for (std::size_t i = 0; i < 3; ++i)
    node.hcas[i].ports[0].rate = base::Unreadable{EINVAL};
  EXPECT_EQ(choose(node).ports.size(), 3U) << "unknown rates are equal";
}

TEST(Choice, PrefersHardwareToSoftware) {
  Inventory node = rails(2);
  node.hcas[0].driver = "rdma_rxe";
  node.hcas[0].pci.reset();
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, Names{"mlx5_1:1"});
  EXPECT_EQ(chosen.reasons, Names{"mlx5_0:1: software RDMA device, and hardware is available"});
  EXPECT_EQ(choose(node, "mlx5_0").ports, Names{"mlx5_0:1"});
  node.hcas[1] = node.hcas[0];
  EXPECT_EQ(choose(node).ports.size(), 2U) << "all ports are software";
}

// Rails with these addresses in addition to link-local ones.
Inventory with_addresses(std::initializer_list<std::vector<const char*>> rails_addresses) {
  Inventory node = rails(static_cast<unsigned>(rails_addresses.size()));
  std::size_t i = 0;
  for (const auto& addresses : rails_addresses) {
    auto& own = node.netdevs[i + 1].addresses;
    auto& gids = node.hcas[i].ports[0].gids;
    own.erase(own.begin());  // removes the IPv4 address and keeps the link-local one
    gids.resize(2);
    for (const char* text : addresses) {
      own.push_back({test_support::address(text), 64, text});
      gids.push_back(test_support::v2(static_cast<unsigned>(gids.size()), text));
    }
    ++i;
  }
  return node;
}

TEST(Choice, PrefersTheFamilyOfMostPorts) {
  Chosen chosen = choose(with_addresses({{"10.0.0.1", "fd00::1"}, {"fd00::2"}, {"10.0.0.3"}}));
  EXPECT_EQ(chosen.choice.rank, GidRank::kIpv4) << "IPv4 wins a tie";
  EXPECT_EQ(chosen.reasons, Names{"mlx5_1:1: no IPv4 GID of RoCE v2, and IPv4 covers most ports"});

  chosen = choose(with_addresses({{"10.0.0.1", "fd00::1"}, {"fd00::2"}, {"fd00::3"}}));
  EXPECT_EQ(chosen.choice.rank, GidRank::kIpv6);
  EXPECT_EQ(chosen.ports.size(), 3U);

  chosen = choose(with_addresses({{"10.0.0.1"}, {"fd00::2"}, {"fd00::3"}}));
  EXPECT_EQ(chosen.reasons, Names{"mlx5_0:1: no IPv6 GID of RoCE v2, and IPv6 covers most ports"});

  chosen = choose(with_addresses({{}, {"10.0.0.1"}}));
  EXPECT_EQ(chosen.ports, Names{"mlx5_1:1"})
      << "a port with link-local GIDs only is dropped if another port has better ones";
  EXPECT_EQ(choose(with_addresses({{}, {"10.0.0.1"}}), "mlx5_*").ports, Names{"mlx5_1:1"});

  chosen = choose(with_addresses({{}, {}}));
  EXPECT_EQ(chosen.choice.rank, GidRank::kLinkLocal);
  EXPECT_EQ(chosen.ports.size(), 2U);
}

TEST(Choice, DropsTheNicOfTheDefaultRoute) {
  Inventory node = rails(3);
  node.routes = {{"default", "rail1", 254}};
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports, (Names{"mlx5_0:1", "mlx5_2:1"}));
  EXPECT_EQ(chosen.reasons,
            Names{"mlx5_1:1: rail1 carries the default route, so it is the front-end NIC; --hca selects it"});
  EXPECT_EQ(choose(node, "mlx5_1,mlx5_2").ports, (Names{"mlx5_1:1", "mlx5_2:1"}));
  EXPECT_EQ(choose(node, "mlx5_1").ports, Names{"mlx5_1:1"});
  node.routes = {{"default", "rail1", 100}};
  EXPECT_EQ(choose(node).ports.size(), 3U) << "a policy route is not the default route";
  node.routes.reset();
  EXPECT_EQ(choose(node).ports.size(), 3U) << "the routes are not known";

  Inventory single = rails(1);
  single.routes = {{"0.0.0.0/0", "rail0", 254}};
  EXPECT_EQ(choose(single).ports.size(), 1U) << "it is the only port";

  Inventory bonded = rails(2);
  bonded.netdevs[1].master = "bond0";
  bonded.netdevs.push_back(test_support::netdev("bond0", {"172.16.0.1"}));
  bonded.routes = {{"::/0", "bond0", 254}};
  EXPECT_EQ(choose(bonded).ports, Names{"mlx5_1:1"}) << "the route of a bond is the route of its slave";
}

TEST(Choice, KeepsRailsBesideAFasterFrontEndNic) {
  Inventory node = rails(4);
  for (std::size_t i = 1; i < 4; ++i)
    set_rate(node, i, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(choose(node).ports, Names{"mlx5_0:1"});
  node.routes = {{"default", "rail0", 254}};
  EXPECT_EQ(choose(node).ports, (Names{"mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}));
  for (std::size_t i = 1; i < 4; ++i)
    set_rate(node, i, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(choose(node).ports, Names{"mlx5_0:1"}) << "the rails have less than the front-end NIC together";
}

TEST(Choice, ComparesLinkLayersByThePortsThatAreKept) {
  Inventory node = rails(6);
  make_infiniband(node, 0);
  make_infiniband(node, 1, "200 Gb/sec (4X HDR)");
  make_infiniband(node, 2, "200 Gb/sec (4X HDR)");
  for (std::size_t i = 3; i < 6; ++i)
    set_rate(node, i, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(choose(node).ports.size(), 3U) << "InfiniBand has 800 Gb/s, of which one port of 400 would be kept";
  node.routes = {{"default", "rail3", 254}};
  EXPECT_EQ(choose(node).ports, Names{"mlx5_0:1"}) << "the front-end NIC of Ethernet would be dropped";
  node = rails(9);
  set_rate(node, 0, "800 Gb/sec (4X XDR)");
  for (std::size_t i = 1; i < 9; ++i)
    make_infiniband(node, i);
  EXPECT_EQ(choose(node).ports.size(), 8U) << "eight ports of 400 have more than one of 800";
}

TEST(Choice, KeepsOneInfinibandNetwork) {
  Inventory node = rails(5);
  const auto set_subnet = [&](std::size_t index, const char* gid) {
    make_infiniband(node, index);
    node.hcas[index].ports[0].gids = {test_support::v1(0, gid)};
  };
  for (std::size_t i = 0; i < 5; ++i)
    set_subnet(i, i < 3 ? "fe80:0:0:1::9" : "fe80:0:0:2::9");
  Chosen chosen = choose(node);
  EXPECT_EQ(chosen.ports.size(), 3U);
  EXPECT_EQ(lines_of(chosen.choice.warnings),
            Names{"ports of 2 InfiniBand networks, between which there is no path: 3 in subnet fe80:0:0:1::/64; 2 in "
                  "subnet fe80:0:0:2::/64; remedy: --hca selects the ports of another network"});
  EXPECT_EQ(choose(node, "mlx5_*").ports.size(), 5U);
  EXPECT_EQ(choose(node, "mlx5_3,mlx5_4").ports.size(), 2U);
  set_subnet(2, "fe80:0:0:3::9");
  EXPECT_EQ(choose(node).ports.size(), 5U) << "two networks are equal: parallel fabrics";
  for (std::size_t i = 0; i < 5; ++i) {
    set_subnet(i, "fe80::9");
    node.hcas[i].ports[0].pkeys = {i < 3 ? "0x8001" : "0x8002"};
  }
  EXPECT_EQ(choose(node).ports.size(), 3U) << "partitions";
  node.hcas[4].ports[0].pkeys = {"0x0001"};
  EXPECT_EQ(choose(node).ports.size(), 4U) << "a limited member is in the partition";
  node.hcas[4].ports[0].pkeys.reset();
  EXPECT_EQ(choose(node).ports.size(), 5U) << "unknown P_Keys exclude no port";
}

TEST(Choice, IgnoresUnusablePortsOfAList) {
  Inventory node = rails(2);
  node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_TRUE(choose(node, "mlx5_0").ports.empty());
  EXPECT_EQ(choose(node, "mlx5_0").reasons[1], "mlx5_1:1: excluded by --hca mlx5_0");
  EXPECT_EQ(choose(node, nullptr, "=mlx5_0").reasons[1], "mlx5_1:1: excluded by NCCL_IB_HCA, which is already set");
}

// The order is usability, management, link layer, software, rate, default route, family, network. A later step ignores
// the ports that an earlier one dropped, and a comparison counts only ports that the later steps keep.
TEST(Choice, AppliesTheStepsInOrder) {
  // The fast management functions do not affect the choice of the link layer.
  Inventory node = rails(8);
  share_slot(node, {4, 5, 6, 7});
  for (std::size_t i = 4; i < 8; ++i)
    make_infiniband(node, i, "800 Gb/sec (4X XDR)");
  EXPECT_EQ(choose(node).ports.size(), 4U);
  EXPECT_EQ(choose(node).ports[0], "mlx5_0:1");

  // Four slow InfiniBand ports have a higher total rate than one fast Ethernet port: the link layer is chosen before
  // the rate.
  node = rails(5);
  for (std::size_t i = 1; i < 5; ++i)
    make_infiniband(node, i, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(choose(node).ports.size(), 4U);

  // Slow hardware wins over a software device with the highest rate: the rate is compared among the hardware.
  node = rails(2);
  node.hcas[0].driver = "rdma_rxe";
  node.hcas[0].pci.reset();
  set_rate(node, 1, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(choose(node).ports, Names{"mlx5_1:1"});

  // The family is counted over the ports that the rate left.
  node = with_addresses({{"10.0.0.1"}, {"fd00::2"}, {"fd00::3"}});
  set_rate(node, 1, "100 Gb/sec (4X EDR)");
  set_rate(node, 2, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(choose(node).choice.rank, GidRank::kIpv4);

  // The family is counted without the NIC of the default route.
  node = with_addresses({{"10.0.0.1", "10.0.0.9"}, {"fd00::2"}});
  node.routes = {{"default", "rail0", 254}};
  EXPECT_EQ(choose(node).ports, Names{"mlx5_1:1"});
}

}  // namespace
