// HCAs that vanish while they are read. What is gone is missing in the answer; nothing crashes, hangs or is half read
// into a wrong value.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "fabric/rdma_sysfs.hpp"
#include "fabric/read_inventory.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;

using fabric::Inventory;
using test_support::lay_out;
using test_support::rails;
using test_support::TempDir;

constexpr const char* kHca = "sys/class/infiniband/mlx5_0";

Inventory read(const TempDir& root, bool full) {
  fabric::ReadOptions options;
  options.root = root.path();
  options.full = full;
  return fabric::read_inventory(options);
}

TEST(Unplug, WhateverIsGoneIsMissingInTheAnswer) {
  const char* const parts[] = {"/ports",          "/ports/1",   "/ports/1/gids", "/ports/1/gid_attrs", "/ports/1/state",
                               "/ports/1/gids/3", "/node_guid", "/device",       "/ports/1/link_layer"};
  for (const char* part : parts) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(std::string(part) + (full ? " full" : ""));
      const TempDir root;
      lay_out(rails(2), root.path());
      fs::remove_all(fs::canonical(root / kHca).string() + part);
      const Inventory seen = read(root, full);
      ASSERT_EQ(seen.hcas.size(), 2U);
      EXPECT_EQ(seen.hcas[1].ports.at(0).gids.size(), 4U) << "the other HCA is whole";
    }
  }
}

TEST(Unplug, ADanglingClassLinkIsNoHca) {
  const TempDir root;
  lay_out(rails(2), root.path());
  fs::remove_all(fs::canonical(root / kHca));
  const Inventory seen = read(root, true);
  ASSERT_EQ(seen.hcas.size(), 1U);
  EXPECT_EQ(seen.hcas[0].name, "mlx5_1");
}

TEST(Unplug, ANameThatWasListedMayBeGone) {
  const TempDir root;
  lay_out(rails(1), root.path());
  const std::vector<fabric::Netdev> netdevs;
  const fabric::rdma_sysfs::Classes classes(root / "sys");
  const fabric::rdma_sysfs::Scan scan{.classes = classes, .root = root.path(), .netdevs = &netdevs};
  EXPECT_TRUE(fabric::rdma_sysfs::read_hcas(scan, {"mlx5_7"}).empty());
}

// Another process takes the HCA away and brings it back for as long as this one reads. Renaming moves the whole
// directory at once, under descriptors that are open in it, as a kernel's unplug does.
TEST(Unplug, TreeThatComesAndGoesDuringTheRead) {
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
    while (getppid() == parent) {  // an orphan ends by itself
      rename(gids.c_str(), gids_aside.c_str());
      rename(gids_aside.c_str(), gids.c_str());
      rename(hca.c_str(), aside.c_str());
      rename(aside.c_str(), hca.c_str());
    }
    _exit(0);
  }
  std::size_t whole = 0;
  for (int i = 0; i < 400; ++i) {
    const Inventory seen = read(root, i % 2 == 0);
    ASSERT_GE(seen.hcas.size(), 2U);
    EXPECT_EQ(seen.hcas.back().name, "mlx5_2");
    EXPECT_EQ(seen.hcas.back().ports.at(0).gids.size(), 4U);
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
