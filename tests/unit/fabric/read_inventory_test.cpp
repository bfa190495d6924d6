// What read_inventory() touches: no slot more than it needs, whatever stands in /dev/infiniband, and every real machine
// from its tree.
#include "fabric/read_inventory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "fabric/snapshot.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;

using fabric::Hca;
using fabric::Inventory;
using fabric::Port;
using test_support::lay_out;
using test_support::rails;
using test_support::read_tree;
using test_support::TempDir;
using test_support::write_file;

constexpr const char* kFirstPort = "/sys/class/infiniband/mlx5_0/ports/1";

// How little is read: the slots behind the needed ones cannot be read here, which would show.
class ReadsLittle : public testing::Test {
 protected:
  void trap(const std::string& port, unsigned from, unsigned to) {
    for (unsigned slot = from; slot < to; ++slot) {
      const std::string path = fmt::format("{}{}/gids/{}", root_.path(), port, slot);
      fs::remove(path);
      fs::create_directory(path);
    }
  }
  TempDir root_;
};

TEST_F(ReadsLittle, NoSlotAfterTheLastGidOfThisNetns) {
  lay_out(rails(1), root_.path(), {.full = true});
  trap(kFirstPort, 4, 256);
  const Port port = read_tree(root_.path()).hcas[0].ports[0];
  EXPECT_EQ(port.gids.size(), 4U);
  EXPECT_FALSE(port.gids_complete);
  EXPECT_FALSE(port.gids_error) << "slot 4 was read";
  EXPECT_EQ(read_tree(root_.path(), true).hcas[0].ports[0].gids_error, EISDIR) << "a full report reads all";
}

TEST_F(ReadsLittle, NoSlotOfPortsThatCannotBeUsed) {
  Inventory node = rails(4);
  node.hcas[0].ports[0].state = "1: DOWN";
  node.hcas[1].ports[0].link_layer = "InfiniBand";
  node.hcas[2].accessible = false;
  lay_out(node, root_.path(), {.full = true});
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2"})
    trap(fmt::format("/sys/class/infiniband/{}/ports/1", name), 0, 256);
  const Inventory seen = read_tree(root_.path());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(seen.hcas[i].ports[0].gids_error) << i;
    EXPECT_FALSE(seen.hcas[i].ports[0].gids_complete) << i;
  }
  EXPECT_EQ(seen.hcas[3].ports[0].gids.size(), 4U);
}

TEST_F(ReadsLittle, NoNetdevNamesOfGids) {
  Inventory node = rails(1);
  node.hcas[0].ports[0].gids[3].ndev = fabric::Attr<std::string>("rail0");
  lay_out(node, root_.path());
  EXPECT_FALSE(read_tree(root_.path()).hcas[0].ports[0].gids.at(3).ndev);
  EXPECT_TRUE(read_tree(root_.path(), true).hcas[0].ports[0].gids.at(3).ndev);
}

TEST_F(ReadsLittle, WholeTablesOnDemandOfUsablePortsOnly) {
  Inventory node = rails(2);
  node.hcas[0].ports[0].state = "1: DOWN";
  lay_out(node, root_.path(), {.full = true});
  trap(kFirstPort, 0, 256);
  fabric::ReadOptions options;
  options.root = root_.path();
  options.whole_tables = true;
  const Inventory seen = fabric::read_inventory(options);
  EXPECT_FALSE(seen.hcas[0].ports[0].gids_error);
  EXPECT_TRUE(seen.hcas[1].ports[0].gids_complete);
  EXPECT_EQ(seen.hcas[1].ports[0].gid_tbl_len, 256U);
  EXPECT_FALSE(seen.hcas[1].fw_ver);
}

TEST_F(ReadsLittle, NothingButTheListWithoutHcas) {
  lay_out(rails(0), root_.path());
  const Inventory seen = read_tree(root_.path());
  EXPECT_TRUE(seen.netdevs.empty()) << "without an HCA nothing of the network matters";
  EXPECT_FALSE(seen.rdma_error);
}

TEST(DeviceDirectory, MayBeAnythingAtAll) {
  const TempDir root;
  const Inventory node = rails(1);
  lay_out(node, root.path());
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
}

TEST(DeviceDirectory, AFifoForANodeDoesNotBlock) {
  const TempDir root;
  lay_out(rails(1), root.path());
  fs::remove(root / "dev/infiniband/uverbs0");
  ASSERT_EQ(mkfifo((root / "dev/infiniband/uverbs0").c_str(), 0600), 0);
  EXPECT_EQ(read_tree(root.path()).hcas.size(), 1U);
}

// The tree says what the snapshot said, as far as a tree can: every fixture goes through both.
TEST(RdmaSysfs, FixturesReadBackFromTheirTrees) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(FIXTURES)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".json") || path.ends_with(".expect.json")) continue;
    SCOPED_TRACE(path);
    ++count;
    const auto inventory = fabric::read_snapshot(path);
    ASSERT_TRUE(inventory) << inventory.error().message;
    const TempDir root;
    lay_out(*inventory, root.path());
    const Inventory seen = read_tree(root.path(), true);
    ASSERT_EQ(seen.hcas.size(), inventory->hcas.size());
    for (const Hca& expected : inventory->hcas) {
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

}  // namespace
