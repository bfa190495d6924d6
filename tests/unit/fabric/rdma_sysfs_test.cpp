#include "fabric/rdma_sysfs.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace test_support;

// Reads file trees in the layout of sysfs. These tests also check that rdma-init reads no more than it needs.

constexpr const char* kPort0 = "/sys/class/infiniband/mlx5_0/ports/1";

Inventory laid_out_and_read(const Inventory& node, bool full = false) {
  const TempDir root;
  lay_out(node, root.path());
  return read_tree(root.path(), full);
}

TEST(RdmaSysfs, ReadsEveryFactOfATree) {
  Inventory node = rails(2);
  node.hcas[0].fw_ver = "28.39.1002";
  node.hcas[0].vendor = "0x15b3";
  node.hcas[0].physfn = "0000:11:00.0";
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
  EXPECT_EQ(hca.physfn, "0000:11:00.0");
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

// sysfs of a container has all GPUs of the node.
TEST(RdmaSysfs, KeepsOnlyGpusWithANodeInTheContainer) {
  Inventory node = rails(1);
  node.gpus = {{"0000:1a:00.0", 0, {}}, {"0000:1b:00.0", 0, {}}, {"0000:1c:00.0", 0, {}}};
  const TempDir root;
  lay_out(node, root.path());
  const auto names = [&] {
    std::string text;
    const Inventory seen = read_tree(root.path(), true);
    for (const fabric::Gpu& gpu : seen.gpus.value())
      text += gpu.pci + " ";
    return text;
  };
  const std::string all = "0000:1a:00.0 0000:1b:00.0 0000:1c:00.0 ";
  EXPECT_EQ(names(), all) << "no file of the driver";
  for (const auto& [address, minor] : {std::pair("0000:1a:00.0", "0"), std::pair("0000:1b:00.0", "1")})
    write_file(root / fmt::format("proc/driver/nvidia/gpus/{}/information", address),
               fmt::format("Device Minor: \t {}\n", minor));
  EXPECT_EQ(names(), all) << "no node";
  write_file(root / "dev/nvidia1", "");
  EXPECT_EQ(names(), "0000:1b:00.0 ");
  write_file(root / "dev/nvidia0", "");
  EXPECT_EQ(names(), "0000:1a:00.0 0000:1b:00.0 ") << "the toolkit hides the directory of the third GPU";
}

TEST(RdmaSysfs, ReportsTheErrnoWithoutRdma) {
  const TempDir root;
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENODEV) << "no sysfs";
  fs::create_directories(root / "sys/class/net");
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENOENT) << "no RDMA driver";
  write_file(root / "sys/class/infiniband", "");
  EXPECT_EQ(read_tree(root.path()).rdma_error, ENOTDIR);
  EXPECT_EQ(read_tree(root / "nothing", true).rdma_error, ENODEV);
}

// Nodes from 32 up have a dynamic major, and node numbers do not follow the names of HCAs.
TEST(RdmaSysfs, ReadsNodeNumbersFromSysfs) {
  Inventory node = rails(2);
  node.hcas[0].uverbs = 40;
  node.hcas[0].uverbs_dev = "511:8";
  node.hcas[1].uverbs = 0;
  const Inventory seen = laid_out_and_read(node, true);
  EXPECT_EQ(seen.hcas[0].uverbs, 40U);
  EXPECT_EQ(seen.hcas[0].uverbs_dev, "511:8");
  EXPECT_EQ(seen.hcas[0].accessible, true);
  EXPECT_EQ(seen.hcas[1].uverbs, 0U);
  EXPECT_FALSE(laid_out_and_read(node).hcas[0].uverbs_dev) << "the choice of ports needs no device numbers";
}

TEST(RdmaSysfs, AssignsASubfunctionToItsPciFunction) {
  const TempDir root;
  lay_out(rails(1), root.path());
  // The layout of a subfunction of mlx5: the device is on the auxiliary bus below the PCI function.
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

Inventory software_node(const char* name, const char* driver, const char* parent) {
  Inventory node;
  node.hcas = {test_support::hca(name, 0, {ethernet_port(usual_gids("fe80::1", "10.0.0.1"))})};
  node.hcas[0].pci.reset();
  node.hcas[0].driver = driver;
  node.netdevs = {netdev(parent, {"10.0.0.1/24"})};
  return node;
}

TEST(RdmaSysfs, FindsTheNetdevOfSoftRoceByItsParent) {
  Inventory node = software_node("rxe0", "rdma_rxe", "veth0");
  node.hcas[0].ports[0].netdev = "veth0";
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

TEST(RdmaSysfs, DetectsSoftwareIwarp) {
  Inventory node = software_node("siw0", "siw", "eth0");
  node.hcas[0].ports[0].gids.resize(1);
  node.hcas[0].ports[0].gids[0].ndev = base::Attr<std::string>("eth0");
  node.hcas[0].node_type = "4: RNIC";
  const Inventory seen = laid_out_and_read(node);
  EXPECT_EQ(seen.hcas[0].driver, "siw");
  EXPECT_EQ(seen.hcas[0].ports[0].netdev, "eth0") << "only the GID table names the netdev";
}

TEST(RdmaSysfs, AssignsNetdevsOfTwoPortsByDevPort) {
  Inventory node;
  node.hcas = {test_support::hca(
      "mlx4_0", 0,
      {ethernet_port(usual_gids("fe80::1", "10.0.0.1")), ethernet_port(usual_gids("fe80::2", "10.0.1.1"), 2)})};
  node.netdevs = {netdev("p1", {"10.0.1.1/24"}), netdev("p0", {"10.0.0.1/24"})};
  node.netdevs[0].pci = node.netdevs[1].pci = node.hcas[0].pci;
  node.netdevs[0].dev_port = 1;
  const Inventory seen = laid_out_and_read(node);
  EXPECT_EQ(seen.hcas[0].ports[0].netdev, "p0");
  EXPECT_EQ(seen.hcas[0].ports[1].netdev, "p1");
}

// In switchdev mode, representors of VFs are in the same directory as the uplink, and one sorts before it.
TEST(RdmaSysfs, PrefersTheUplinkToARepresentor) {
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

TEST(RdmaSysfs, PrefersRdmaNetlinkToNamesInSysfs) {
  const TempDir root;
  lay_out(rails(2), root.path());
  const Inventory tree = read_tree(root.path());
  fabric::rdma_sysfs::PortNetdevs answer{{"mlx5_0", "mlx5_1"}, {{{"mlx5_0", 1}, "renamed"}}, {}};
  const auto netdev_of = [&](const char* name) {
    const fabric::rdma_sysfs::Classes classes(root / "sys");
    const fabric::rdma_sysfs::Scan scan{
        .classes = classes, .root = root.path(), .netdevs = &tree.netdevs, .port_netdevs = &answer};
    return fabric::rdma_sysfs::read_hcas(scan, {name}).at(0).ports.at(0).netdev;
  };
  EXPECT_EQ(netdev_of("mlx5_0"), "renamed");
  EXPECT_FALSE(netdev_of("mlx5_1")) << "no netdev from netlink: it is in another netns, whatever sysfs shows";
  answer.hcas.erase("mlx5_1");
  EXPECT_EQ(netdev_of("mlx5_1"), "rail1") << "netlink does not list this HCA";
}

TEST(RdmaSysfs, ContinuesAfterMissingSlots) {
  Inventory node = rails(1);
  node.hcas[0].ports[0].gids = {test_support::v2(7, "10.1.0.1"), test_support::v2(200, "fe80::a288:c2ff:fe10:1")};
  const auto gids = laid_out_and_read(node).hcas[0].ports[0].gids;  // two slots, as in a prepared view of sysfs
  ASSERT_EQ(gids.size(), 2U);
  EXPECT_EQ(gids[0].index, 7U);
  EXPECT_EQ(gids[1].index, 200U);
}

// Reading a directory fails with EISDIR, for root too.
void make_unreadable(const std::string& path) {
  fs::remove(path);
  fs::create_directory(path);
}

void trap(const TempDir& root, const std::string& port, unsigned from, unsigned to) {
  for (unsigned slot = from; slot < to; ++slot)
    make_unreadable(fmt::format("{}{}/gids/{}", root.path(), port, slot));
}

TEST(RdmaSysfs, ReportsTheErrnoOfUnreadableSlotsAndTypes) {
  const TempDir root;
  lay_out(rails(1, 16), root.path(), {.full = true});
  make_unreadable(root.path() + kPort0 + "/gid_attrs/types/3");
  EXPECT_EQ(read_tree(root.path()).hcas[0].ports[0].gids.at(3).type,
            (base::Attr<std::string>(base::Unreadable{EISDIR})));
  trap(root, kPort0, 0, 16);
  const Port port = read_tree(root.path()).hcas[0].ports[0];
  EXPECT_TRUE(port.gids.empty());
  EXPECT_EQ(port.gids_error, EISDIR);
  EXPECT_TRUE(port.is_active());
}

TEST(RdmaSysfs, SkipsSlotsWithGarbage) {
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

// The reads of read_inventory(): the needed slots, any file type in /dev/infiniband, and every fixture as a tree.

// The slots after the needed ones are unreadable in these trees, so reading one sets gids_error.
TEST(ReadsLittle, StopsAfterTheLastGidOfThisNetns) {
  const TempDir root;
  lay_out(rails(1), root.path(), {.full = true});
  trap(root, kPort0, 4, 256);
  const Port port = read_tree(root.path()).hcas[0].ports[0];
  EXPECT_EQ(port.gids.size(), 4U);
  EXPECT_FALSE(port.gids_complete);
  EXPECT_FALSE(port.gids_error) << "slot 4 was read";
  EXPECT_EQ(read_tree(root.path(), true).hcas[0].ports[0].gids_error, EISDIR)
      << "a full report reads the complete table";
}

TEST(ReadsLittle, SkipsTheTablesOfUnusablePorts) {
  const TempDir root;
  Inventory node = rails(4);
  node.hcas[0].ports[0].state = "1: DOWN";
  node.hcas[1].ports[0].link_layer = "InfiniBand";
  node.hcas[2].accessible = false;
  lay_out(node, root.path(), {.full = true});
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2"})
    trap(root, fmt::format("/sys/class/infiniband/{}/ports/1", name), 0, 256);
  const Inventory seen = read_tree(root.path());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(seen.hcas[i].ports[0].gids_error) << i;
    EXPECT_FALSE(seen.hcas[i].ports[0].gids_complete) << i;
  }
  EXPECT_EQ(seen.hcas[3].ports[0].gids.size(), 4U);
}

TEST(ReadsLittle, ReadsNetdevNamesOfGidsOnlyForAFullReport) {
  Inventory node = rails(1);
  node.hcas[0].ports[0].gids[3].ndev = base::Attr<std::string>("rail0");
  EXPECT_FALSE(laid_out_and_read(node).hcas[0].ports[0].gids.at(3).ndev);
  EXPECT_TRUE(laid_out_and_read(node, true).hcas[0].ports[0].gids.at(3).ndev);
}

TEST(ReadsLittle, ReadsWholeTablesOfUsablePortsOnly) {
  const TempDir root;
  Inventory node = rails(2);
  node.hcas[0].ports[0].state = "1: DOWN";
  lay_out(node, root.path(), {.full = true});
  trap(root, kPort0, 0, 256);
  fabric::ReadOptions options;
  options.root = root.path();
  options.tables = fabric::GidTables::kWhole;
  const Inventory seen = fabric::read_inventory(options);
  EXPECT_FALSE(seen.hcas[0].ports[0].gids_error);
  EXPECT_TRUE(seen.hcas[1].ports[0].gids_complete);
  EXPECT_EQ(seen.hcas[1].ports[0].gid_tbl_len, 256U);
  EXPECT_FALSE(seen.hcas[1].fw_ver);
}

TEST(ReadsLittle, SkipsSlotsInWhichTheFirstPortHasNoGid) {
  const TempDir root;
  lay_out(rails(3), root.path(), {.full = true});
  for (const char* name : {"mlx5_1", "mlx5_2"}) {
    const std::string port = fmt::format("/sys/class/infiniband/{}/ports/1", name);
    trap(root, port, 0, 1);
    trap(root, port, 2, 3);
    trap(root, port, 4, 256);
  }
  fabric::ReadOptions options;
  options.root = root.path();
  const Inventory seen = fabric::read_inventory(options);
  EXPECT_FALSE(seen.hcas[0].ports[0].gids_skipped);
  EXPECT_EQ(seen.hcas[0].ports[0].gids.size(), 4U);
  for (const Port& port : {seen.hcas[1].ports[0], seen.hcas[2].ports[0]}) {
    EXPECT_TRUE(port.gids_skipped);
    EXPECT_FALSE(port.gids_complete);
    EXPECT_FALSE(port.gids_error) << "another slot than 1 and 3 was read";
    ASSERT_EQ(port.gids.size(), 2U);
    EXPECT_EQ(port.gids[0].index, 1U);
    EXPECT_EQ(port.gids[1].index, 3U);
    EXPECT_TRUE(port.gids[1].is_v2());
  }
  options.tables = fabric::GidTables::kFromFirst;
  const Port port = fabric::read_inventory(options).hcas[1].ports[0];
  EXPECT_FALSE(port.gids_skipped);
  EXPECT_EQ(port.gids_error, EISDIR);
}

TEST(ReadsLittle, SkipsNoSlotIfPortsHaveTheirGidsInDifferentSlots) {
  Inventory node = rails(4);
  std::vector<fabric::GidEntry>& gids = node.hcas[2].ports[0].gids;
  gids.insert(gids.begin() + 2, v2(2, "::ffff:10.9.9.9"));
  for (std::size_t i = 3; i < gids.size(); ++i)
    gids[i].index = static_cast<unsigned>(i);
  const Inventory seen = laid_out_and_read(node);
  for (std::size_t i = 0; i < 4; ++i) {
    const Port& port = seen.hcas[i].ports[0];
    EXPECT_FALSE(port.gids_skipped) << i;
    ASSERT_EQ(port.gids.size(), i == 2 ? 5U : 4U) << i;
    EXPECT_EQ(port.gids.back().index, i == 2 ? 4U : 3U) << i;
  }
}

// A port without an own GID is not used, so its table does not change the reads of other ports.
TEST(ReadsLittle, SkipsSlotsBesideAPortWithoutAnOwnGid) {
  Inventory node = rails(3);
  node.hcas[1].ports[0].gids = {v2(0, "::ffff:10.9.9.9")};
  const Inventory seen = laid_out_and_read(node);
  EXPECT_EQ(seen.hcas[1].ports[0].gids.size(), 1U);
  EXPECT_FALSE(seen.hcas[1].ports[0].gids_skipped);
  EXPECT_TRUE(seen.hcas[2].ports[0].gids_skipped);
}

TEST(ReadsLittle, ReadsASlotOfTypeV1AsAnUnusualTable) {
  Inventory node = rails(2);
  node.hcas[1].ports[0].gids[3].type = base::Attr<std::string>("IB/RoCE v1");
  const Port port = laid_out_and_read(node).hcas[1].ports[0];
  EXPECT_FALSE(port.gids_skipped);
  EXPECT_EQ(port.gids.size(), 4U);
}

TEST(VerbsNodes, AreFoundByTheLinksOfTheClasses) {
  const TempDir root;
  lay_out(rails(2), root.path());
  for (const char* node : {"uverbs0", "uverbs1"})
    make_unreadable(root / fmt::format("sys/class/infiniband_verbs/{}/ibdev", node));
  const Inventory seen = read_tree(root.path());
  EXPECT_EQ(seen.hcas[0].uverbs, 0U);
  EXPECT_EQ(seen.hcas[1].uverbs, 1U);
  EXPECT_FALSE(seen.hcas[0].class_link) << "snapshots lack the link";
}

TEST(VerbsNodes, AreFoundByNameIfTheLinksAreNotEnough) {
  Inventory node = rails(4);
  node.hcas[0].uverbs = 1;
  node.hcas[1].uverbs = 0;
  node.hcas[1].pci = node.hcas[0].pci;  // mana_ib: two HCAs on one function
  node.hcas[2].pci.reset();             // software devices
  node.hcas[3].pci.reset();
  const Inventory seen = laid_out_and_read(node);
  EXPECT_EQ(seen.hcas[0].uverbs, 1U);
  EXPECT_EQ(seen.hcas[1].uverbs, 0U);
  EXPECT_EQ(seen.hcas[2].uverbs, 2U);
  EXPECT_EQ(seen.hcas[3].uverbs, 3U);
}

TEST(PortNetdevs, AreTakenFromTheCallerIfItKnowsTheDevice) {
  const TempDir root;
  lay_out(rails(3), root.path());
  fabric::rdma_sysfs::Classes classes(root / "sys");
  classes.open_nodes(std::nullopt);
  const auto names_of = [](std::string_view device) -> std::optional<std::vector<std::string>> {
    if (device.ends_with("/0000:10:00.0")) return {{"first"}};
    if (device.ends_with("/0000:11:00.0")) return {{}};
    return std::nullopt;
  };
  const auto hcas = fabric::rdma_sysfs::read_hcas(
      {.classes = classes, .root = root.path(), .netdevs_of_device = names_of, .facts = fabric::kChoiceFacts},
      classes.names());
  ASSERT_EQ(hcas.size(), 3U);
  EXPECT_EQ(hcas[0].ports[0].netdev, "first");
  EXPECT_EQ(hcas[1].ports[0].netdev, std::nullopt) << "a device without netdev here";
  EXPECT_EQ(hcas[2].ports[0].netdev, "rail2") << "not known";
}

TEST(ClassLinks, NameDirectoryOfDevice) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"../../devices/pci0000:00/0000:0c:00.0/net/eth0", "pci0000:00/0000:0c:00.0"},
      {"/sys/devices/pci0000:00/0000:0c:00.0/net/eth0", "pci0000:00/0000:0c:00.0"},  // enroot's hook for Mellanox
      {"/sys/devices/./pci0000:00/0000:0c:00.0/net/eth0", ""},
      {"/host/sys/devices/pci0000:00/0000:0c:00.0/net/eth0", ""},
      {"../../devices/virtual/net/lo", ""},
      {"../../devices/pci0000:00/0000:0c:00.0/infiniband/eth0", ""},
      {"net/eth0", ""},
      {"", ""},
  };
  for (const auto& [link, directory] : cases)
    EXPECT_EQ(fabric::device_directory(link, "net"), directory) << link;
}

TEST(ReadsLittle, ReadsNoNetworkWithoutHcas) {
  const Inventory seen = laid_out_and_read(rails(0));
  EXPECT_TRUE(seen.netdevs.empty()) << "without an HCA the network does not affect the decision";
  EXPECT_FALSE(seen.rdma_error);
}

TEST(DeviceDirectory, MayHaveAnyFileType) {
  const TempDir root;
  lay_out(rails(1), root.path());
  const std::string dev = root / "dev/infiniband";
  ASSERT_EQ(read_tree(root.path()).hcas[0].accessible, true);

  fs::rename(dev, root / "dev/real");
  ASSERT_EQ(symlink("real", dev.c_str()), 0);
  EXPECT_EQ(read_tree(root.path()).hcas[0].accessible, true) << "a link to the directory";

  fs::remove(dev);
  write_file(dev, "");
  EXPECT_EQ(read_tree(root.path()).hcas[0].access_error, ENOTDIR);
  EXPECT_EQ(read_tree(root.path(), true).rdma_cm, false);

  fs::remove(dev);
  ASSERT_EQ(symlink("infiniband", dev.c_str()), 0);
  EXPECT_EQ(read_tree(root.path()).hcas[0].access_error, ELOOP);

  fs::remove(dev);
  EXPECT_EQ(read_tree(root.path()).hcas[0].access_error, ENOENT);

  fs::create_directories(dev + "/uverbs0");
  EXPECT_EQ(read_tree(root.path()).hcas[0].access_error, EISDIR);
  EXPECT_EQ(read_tree(root.path()).hcas[0].accessible, false);

  fs::remove(dev + "/uverbs0");
  ASSERT_EQ(mkfifo((dev + "/uverbs0").c_str(), 0600), 0);
  EXPECT_EQ(read_tree(root.path()).hcas.size(), 1U) << "a FIFO does not block";
}

// Every fixture is read from its snapshot and from its tree, with equal results as far as a tree can express them.
TEST(RdmaSysfs, ReadsEveryFixtureFromItsTree) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(FIXTURES)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".json") || path.ends_with(".expect.json")) continue;
    SCOPED_TRACE(path);
    ++count;
    const auto inventory = test_support::must(fabric::read_snapshot(path));
    const Inventory seen = laid_out_and_read(inventory, true);
    ASSERT_EQ(seen.hcas.size(), inventory.hcas.size());
    for (const Hca& expected : inventory.hcas) {
      SCOPED_TRACE(expected.name);
      const auto found =
          std::find_if(seen.hcas.begin(), seen.hcas.end(), [&](const Hca& hca) { return hca.name == expected.name; });
      ASSERT_NE(found, seen.hcas.end());
      EXPECT_EQ(found->node_guid, expected.node_guid);
      EXPECT_EQ(found->pci, expected.pci);
      EXPECT_EQ(found->driver, expected.driver);
      EXPECT_EQ(found->uverbs, expected.uverbs);
      EXPECT_EQ(found->is_accessible(), expected.is_accessible());
      ASSERT_EQ(found->ports.size(), expected.ports.size());
      for (std::size_t i = 0; i < expected.ports.size(); ++i) {
        EXPECT_EQ(found->ports[i].state, expected.ports[i].state);
        EXPECT_EQ(found->ports[i].link_layer, expected.ports[i].link_layer);
        EXPECT_EQ(found->ports[i].rate, expected.ports[i].rate);
        ASSERT_EQ(found->ports[i].gids.size(), expected.ports[i].gids.size());
        for (std::size_t k = 0; k < expected.ports[i].gids.size(); ++k) {
          EXPECT_EQ(found->ports[i].gids[k].index, expected.ports[i].gids[k].index);
          EXPECT_EQ(found->ports[i].gids[k].gid, expected.ports[i].gids[k].gid);
          EXPECT_EQ(found->ports[i].gids[k].is_v2(), expected.ports[i].gids[k].is_v2());
        }
      }
    }
  }
  EXPECT_GE(count, 18U);
}

// HCAs that are removed during the read. Removed files are missing in the result, and no value is wrong.

constexpr const char* kHca = "sys/class/infiniband/mlx5_0";

TEST(Unplug, LeavesOutRemovedFiles) {
  const char* const parts[] = {"/ports",          "/ports/1",   "/ports/1/gids", "/ports/1/gid_attrs", "/ports/1/state",
                               "/ports/1/gids/3", "/node_guid", "/device",       "/ports/1/link_layer"};
  for (const char* part : parts) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(std::string(part) + (full ? " full" : ""));
      const TempDir root;
      lay_out(rails(2), root.path());
      fs::remove_all(fs::canonical(root / kHca).string() + part);
      const Inventory seen = read_tree(root.path(), full);
      ASSERT_EQ(seen.hcas.size(), 2U);
      EXPECT_EQ(seen.hcas[1].ports.at(0).gids.back().index, 3U) << "the other HCA is complete";
    }
  }
}

TEST(Unplug, LeavesOutHcasWithADanglingLinkOrWithoutADirectory) {
  const TempDir root;
  lay_out(rails(2), root.path());
  fs::remove_all(fs::canonical(root / kHca));
  const Inventory seen = read_tree(root.path(), true);
  ASSERT_EQ(seen.hcas.size(), 1U);
  EXPECT_EQ(seen.hcas[0].name, "mlx5_1");
  const std::vector<fabric::Netdev> netdevs;
  const fabric::rdma_sysfs::Classes classes(root / "sys");
  const fabric::rdma_sysfs::Scan scan{.classes = classes, .root = root.path(), .netdevs = &netdevs};
  EXPECT_TRUE(fabric::rdma_sysfs::read_hcas(scan, {"mlx5_7"}).empty());
}

// The HCA was in the list, but its link is gone. That is no file tree with a directory in place of the link.
TEST(Unplug, HcaWithoutLinkIsStale) {
  const TempDir root;
  lay_out(rails(1), root.path());
  const fabric::rdma_sysfs::Classes classes(root / "sys");
  std::vector<fabric::Unread> unread;
  const fabric::rdma_sysfs::Scan scan{.classes = classes,
                                      .root = root.path(),
                                      .facts = {.node = false, .identity = true},
                                      .hand_out = true,
                                      .unread = &unread};
  EXPECT_TRUE(fabric::rdma_sysfs::read_hcas(scan, {"mlx5_0"}).at(0).class_link);
  EXPECT_TRUE(unread.empty());
  EXPECT_TRUE(fabric::rdma_sysfs::read_hcas(scan, {"mlx5_7"}).empty());
  ASSERT_EQ(unread.size(), 1U);
  EXPECT_EQ(unread[0].code, ESTALE);
  fs::create_directory(root / "sys/class/infiniband/mlx5_8");
  EXPECT_FALSE(fabric::rdma_sysfs::read_hcas(scan, {"mlx5_8"}).at(0).class_link);
  EXPECT_EQ(unread.size(), 1U);
}

// Another process removes the HCA and restores it during the reads. rename() moves the complete directory at once,
// while descriptors in it are open, as an unplug in the kernel does.
TEST(Unplug, ReadsATreeThatChangesDuringTheRead) {
  const TempDir root;
  lay_out(rails(3, 64), root.path(), {.full = true});
  const std::string hca = fs::canonical(root / kHca);
  const std::string aside = root / "aside";
  const std::string gids = hca + "/ports/1/gids";
  const std::string gids_aside = root / "gids-aside";
  const pid_t parent = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (getppid() == parent) {  // ends with its parent
      rename(gids.c_str(), gids_aside.c_str());
      rename(gids_aside.c_str(), gids.c_str());
      rename(hca.c_str(), aside.c_str());
      rename(aside.c_str(), hca.c_str());
    }
    _exit(0);
  }
  std::size_t whole = 0;
  for (int i = 0; i < 400; ++i) {
    const Inventory seen = read_tree(root.path(), i % 2 == 0);
    ASSERT_GE(seen.hcas.size(), 2U);
    EXPECT_EQ(seen.hcas.back().name, "mlx5_2");
    EXPECT_EQ(seen.hcas.back().ports.at(0).gids.back().index, 3U);
    if (seen.hcas.size() < 3 || seen.hcas[0].ports.empty()) continue;
    const auto& entries = seen.hcas[0].ports[0].gids;
    ASSERT_LE(entries.size(), 4U);
    whole += entries.size() == 4 ? 1U : 0U;
    for (const fabric::GidEntry& entry : entries)
      EXPECT_EQ(entry.gid, rails(1).hcas[0].ports[0].gids.at(entry.index).gid);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  RecordProperty("whole_reads", static_cast<int>(whole));
}

}  // namespace
