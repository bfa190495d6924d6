// Reading file trees in the layout of sysfs: what rdma-init sees of a machine, and how little of it it reads.
#include "fabric/rdma_sysfs.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;

using fabric::Hca;
using fabric::Inventory;
using fabric::Port;
using test_support::ethernet_port;
using test_support::lay_out;
using test_support::netdev;
using test_support::rails;
using test_support::read_tree;
using test_support::TempDir;
using test_support::usual_gids;
using test_support::write_file;

constexpr const char* kPort0 = "/sys/class/infiniband/mlx5_0/ports/1";

TEST(RdmaSysfs, ReadsBackWhatTheTreeSays) {
  Inventory node = rails(2);
  node.hcas[0].fw_ver = "28.39.1002";
  node.hcas[0].vendor = "0x15b3";
  node.hcas[0].pci_path = {{"0000:00:01.0", "0000:0e:00.0", "0000:0f:00.0"}};
  node.gpus = {{"0000:1a:00.0", 1, {{"0000:00:01.0", "0000:0e:00.0", "0000:0f:02.0"}}}};
  const TempDir root;
  lay_out(node, root.path(), {.full = true});
  const Inventory seen = read_tree(root.path(), true);
  ASSERT_EQ(seen.hcas.size(), 2U);
  const Hca& hca = seen.hcas[0];
  EXPECT_EQ(hca.name, "mlx5_0");
  EXPECT_EQ(hca.node_guid, node.hcas[0].node_guid);
  EXPECT_EQ(hca.pci, "0000:10:00.0");
  EXPECT_EQ(hca.numa_node, 0);
  EXPECT_EQ(hca.driver, "mlx5_core");
  EXPECT_EQ(hca.vendor, "0x15b3");
  EXPECT_EQ(hca.fw_ver, "28.39.1002");
  EXPECT_EQ(hca.pci_path, node.hcas[0].pci_path);
  EXPECT_EQ(hca.uverbs, 0U);
  EXPECT_EQ(hca.uverbs_dev, "231:192");
  EXPECT_EQ(hca.accessible, true);
  ASSERT_EQ(hca.ports.size(), 1U);
  const Port& port = hca.ports[0];
  EXPECT_TRUE(port.is_active());
  EXPECT_EQ(port.rate_gbps(), 400);
  EXPECT_EQ(port.gid_tbl_len, 256U);
  EXPECT_EQ(port.netdev, "rail0");
  EXPECT_TRUE(port.gids_complete);
  ASSERT_EQ(port.gids.size(), 4U);
  EXPECT_EQ(port.gids[3].index, 3U);
  EXPECT_TRUE(port.gids[3].is_v2());
  EXPECT_FALSE(port.gids[2].is_v2());
  EXPECT_EQ(seen.rdma_cm, true);
  ASSERT_TRUE(seen.gpus && seen.gpus->size() == 1);
  EXPECT_EQ((*seen.gpus)[0], (*node.gpus)[0]);
}

TEST(RdmaSysfs, NoRdmaIsAValueToo) {
  const TempDir root;
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENODEV) << "no sysfs at all";
  fs::create_directories(root / "sys/class/net");
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENOENT) << "no RDMA driver";
  write_file(root / "sys/class/infiniband", "");
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENOTDIR);
  EXPECT_EQ(read_tree(root / "nothing", true).rdma_error, ENODEV);
}

// Nodes from 32 up have a dynamic major, and their numbers follow no HCA's name.
TEST(RdmaSysfs, TakesNodeNumbersFromSysfs) {
  Inventory node = rails(2);
  node.hcas[0].uverbs = 40;
  node.hcas[0].uverbs_dev = "511:8";
  node.hcas[1].uverbs = 0;
  const TempDir root;
  lay_out(node, root.path());
  const Inventory seen = read_tree(root.path(), true);
  EXPECT_EQ(seen.hcas[0].uverbs, 40U);
  EXPECT_EQ(seen.hcas[0].uverbs_dev, "511:8");
  EXPECT_EQ(seen.hcas[0].accessible, true);
  EXPECT_EQ(seen.hcas[1].uverbs, 0U);
  EXPECT_FALSE(read_tree(root.path()).hcas[0].uverbs_dev) << "choosing ports needs no device numbers";
}

TEST(RdmaSysfs, ASubFunctionBelongsToItsPciFunction) {
  const Inventory node = rails(1);
  const TempDir root;
  lay_out(node, root.path());
  // As mlx5 shows a sub-function: the device is on the auxiliary bus below the PCI function.
  const std::string parent = "sys/devices/pci0000:00/0000:00:10.0/0000:10:00.0";
  const std::string sf = parent + "/mlx5_core.sf.2/infiniband/mlx5_9";
  write_file(root / sf + "/ports/1/state", "4: ACTIVE\n");
  write_file(root / sf + "/node_guid", "0000:0000:0000:0009\n");
  ASSERT_EQ(symlink("../../../mlx5_core.sf.2", (root / sf + "/device").c_str()), 0);
  ASSERT_EQ(symlink(("../../../" + sf).c_str(), (root / "sys/class/infiniband/mlx5_9").c_str()), 0);
  const Inventory seen = read_tree(root.path(), true);
  ASSERT_EQ(seen.hcas.size(), 2U);
  EXPECT_EQ(seen.hcas[1].name, "mlx5_9");
  EXPECT_EQ(seen.hcas[1].pci, "0000:10:00.0");
  EXPECT_EQ(seen.hcas[1].pci_path, (std::vector<std::string>{"0000:00:10.0"}));
  EXPECT_FALSE(seen.hcas[1].uverbs);
  EXPECT_EQ(seen.hcas[1].accessible, false);
}

TEST(RdmaSysfs, SoftRoceNamesItsParent) {
  Inventory node;
  node.hcas = {test_support::hca("rxe0", 0, {ethernet_port(usual_gids("fe80::1", "10.0.0.1"))})};
  node.hcas[0].pci.reset();
  node.hcas[0].driver = "rdma_rxe";
  node.hcas[0].ports[0].netdev = "veth0";
  node.netdevs = {netdev("veth0", {"10.0.0.1/24"})};
  const TempDir root;
  lay_out(node, root.path());
  Inventory seen = read_tree(root.path());
  ASSERT_EQ(seen.hcas.size(), 1U);
  EXPECT_EQ(seen.hcas[0].driver, "rdma_rxe");
  EXPECT_TRUE(seen.hcas[0].is_software());
  EXPECT_FALSE(seen.hcas[0].pci);
  EXPECT_EQ(seen.hcas[0].ports[0].netdev, "veth0");
  write_file(root / "sys/devices/virtual/infiniband/rxe0/parent", "eth7\n");
  EXPECT_FALSE(read_tree(root.path()).hcas[0].ports[0].netdev) << "a parent that is not in this netns";
}

TEST(RdmaSysfs, IwarpOverTcpIsSoftwareToo) {
  Inventory node;
  node.netdevs = {netdev("eth0", {"10.0.0.1/24"})};
  node.hcas = {test_support::hca("siw0", 0, {ethernet_port({test_support::v1(0, "fe80::1")})})};
  node.hcas[0].ports[0].gids[0].ndev = fabric::Attr<std::string>("eth0");
  node.hcas[0].pci.reset();
  node.hcas[0].driver = "siw";
  node.hcas[0].node_type = "4: RNIC";
  const TempDir root;
  lay_out(node, root.path());
  EXPECT_EQ(read_tree(root.path()).hcas[0].driver, "siw");
  EXPECT_EQ(read_tree(root.path()).hcas[0].ports[0].netdev, "eth0") << "only its GIDs know it";
}

TEST(RdmaSysfs, TwoPortsOfOneFunctionAreToldByDevPort) {
  Inventory node;
  node.hcas = {test_support::hca(
      "mlx4_0", 0,
      {ethernet_port(usual_gids("fe80::1", "10.0.0.1")), ethernet_port(usual_gids("fe80::2", "10.0.1.1"), 2)})};
  node.netdevs = {netdev("p1", {"10.0.1.1/24"}), netdev("p0", {"10.0.0.1/24"})};
  node.netdevs[0].pci = node.netdevs[1].pci = node.hcas[0].pci;
  node.netdevs[0].dev_port = 1;
  const TempDir root;
  lay_out(node, root.path());
  const Inventory seen = read_tree(root.path());
  EXPECT_EQ(seen.hcas[0].ports[0].netdev, "p0");
  EXPECT_EQ(seen.hcas[0].ports[1].netdev, "p1");
}

// In switchdev mode the representors of VFs lie beside the uplink, and sort before it.
TEST(RdmaSysfs, TheUplinkIsThePortsNetdevNotARepresentor) {
  Inventory node = rails(1);
  for (const char* name : {"aaa_vf0", "zzz_sf1"}) {
    node.netdevs.push_back(netdev(name, {}));
    node.netdevs.back().pci = node.hcas[0].pci;
  }
  const TempDir root;
  lay_out(node, root.path());
  write_file(root / "sys/class/net/aaa_vf0/phys_port_name", "pf0vf0\n");
  write_file(root / "sys/class/net/zzz_sf1/phys_port_name", "pf0sf88\n");
  write_file(root / "sys/class/net/rail0/phys_port_name", "p0\n");
  EXPECT_EQ(read_tree(root.path()).hcas[0].ports[0].netdev, "rail0");
}

TEST(RdmaSysfs, RdmaNetlinkBeatsTheNamesInSysfs) {
  const TempDir root;
  lay_out(rails(2), root.path());
  const Inventory tree = read_tree(root.path());
  fabric::rdma_sysfs::PortNetdevs answer{{"mlx5_0", "mlx5_1"}, {{{"mlx5_0", 1}, "renamed"}}};
  const auto netdev_of = [&](const char* name) {
    const fabric::rdma_sysfs::Classes classes(root / "sys");
    const fabric::rdma_sysfs::Scan scan{
        .classes = classes, .root = root.path(), .netdevs = &tree.netdevs, .port_netdevs = &answer};
    return fabric::rdma_sysfs::read_hcas(scan, {name}).at(0).ports.at(0).netdev;
  };
  EXPECT_EQ(netdev_of("mlx5_0"), "renamed");
  EXPECT_FALSE(netdev_of("mlx5_1")) << "no answer: it is in another netns, whatever sysfs shows";
  answer.hcas.erase("mlx5_1");
  EXPECT_EQ(netdev_of("mlx5_1"), "rail1") << "an HCA that it does not list";
}

TEST(RdmaSysfs, AVirtualFunctionNamesItsPhysicalOne) {
  Inventory node = rails(1);
  node.hcas[0].physfn = "0000:11:00.0";
  const TempDir root;
  lay_out(node, root.path());
  EXPECT_EQ(read_tree(root.path()).hcas[0].physfn, "0000:11:00.0");
}

TEST(RdmaSysfs, MissingSlotsEndNothing) {
  const TempDir root;
  Inventory node = rails(1);
  node.hcas[0].ports[0].gids = {test_support::v2(7, "10.1.0.1"), test_support::v2(200, "fe80::a288:c2ff:fe10:1")};
  lay_out(node, root.path());  // files 7 and 200 only, as a prepared view of sysfs has
  const Inventory seen = read_tree(root.path());
  ASSERT_EQ(seen.hcas[0].ports[0].gids.size(), 2U);
  EXPECT_EQ(seen.hcas[0].ports[0].gids[0].index, 7U);
  EXPECT_EQ(seen.hcas[0].ports[0].gids[1].index, 200U);
}

TEST(RdmaSysfs, UnreadableSlotsAreValues) {
  const TempDir root;
  lay_out(rails(1, 16), root.path(), {.full = true});
  for (int slot = 0; slot < 16; ++slot) {  // reading a directory fails with EISDIR, whoever reads
    const std::string path = fmt::format("{}{}/gids/{}", root.path(), kPort0, slot);
    fs::remove(path);
    fs::create_directory(path);
  }
  const Inventory seen = read_tree(root.path());
  EXPECT_TRUE(seen.hcas[0].ports[0].gids.empty());
  EXPECT_EQ(seen.hcas[0].ports[0].gids_error, EISDIR);
  EXPECT_TRUE(seen.hcas[0].ports[0].is_active());
}

TEST(RdmaSysfs, UnreadableTypesAreValues) {
  const TempDir root;
  lay_out(rails(1), root.path());
  const std::string type = root.path() + kPort0 + "/gid_attrs/types/3";
  fs::remove(type);
  fs::create_directory(type);
  const Inventory seen = read_tree(root.path());
  const auto& entry = seen.hcas[0].ports[0].gids.at(3);
  ASSERT_TRUE(entry.type);
  EXPECT_EQ(*entry.type, (fabric::Attr<std::string>(fabric::Unreadable{EISDIR})));
}

TEST(RdmaSysfs, GarbageInAttributesIsNoGid) {
  const TempDir root;
  lay_out(rails(1, 8), root.path(), {.full = true});
  write_file(root.path() + kPort0 + "/gids/0", "not a gid\n");
  write_file(root.path() + kPort0 + "/gids/1", std::string(10000, '0'));
  write_file(root.path() + kPort0 + "/gids/4294967294", "fe80::9\n");
  write_file(root.path() + kPort0 + "/gids/-1", "fe80::9\n");
  write_file(root.path() + kPort0 + "/rate", "fast\n");
  fs::create_directory(root.path() + "/sys/class/infiniband/mlx5_0/ports/x");
  const Inventory seen = read_tree(root.path(), true);
  ASSERT_EQ(seen.hcas[0].ports.size(), 1U);
  EXPECT_EQ(seen.hcas[0].ports[0].gids.size(), 2U);
  EXPECT_EQ(seen.hcas[0].ports[0].rate_gbps(), 0);
}

}  // namespace
