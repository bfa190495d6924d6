// A uverbs node that got another number: found in sysfs, and followed by the plan.
#include "hook/plan/plan.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "fabric/unique_fd.hpp"
#include "hook/plan/parts.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using test_support::TempDir;
using test_support::write_file;

PlannedNode node(const std::string& path, unsigned minor) {
  return {.path = path, .major = 231, .minor = minor};
}

// mlx5_0 and mlx5_1 with uverbs0 and uverbs1; rxe0 with uverbs10.
fabric::Inventory inventory() {
  fabric::Inventory inventory = test_support::rails(2);
  inventory.hcas.push_back(test_support::hca("rxe0", 10, {}));
  return inventory;
}

Plan plan() {
  Plan plan;
  plan.nodes = {node("/dev/infiniband/uverbs1", 193), node("/dev/infiniband/uverbs10", 202),
                node("/dev/infiniband/rdma_cm", 58)};
  return plan;
}

TEST(Renumber, TheNodeFollows) {
  Plan changed = plan();
  renumber(inventory(), {{"mlx5_1", 7, "231:199"}}, changed);
  Plan expected = plan();
  expected.nodes[0] = node("/dev/infiniband/uverbs7", 199);
  EXPECT_EQ(changed.nodes, expected.nodes);
}

TEST(Renumber, OtherNumbersOfTheSameName) {
  Plan changed = plan();
  // The dynamic numbers of uverbs32 and up.
  renumber(inventory(), {{"rxe0", 32, "510:0"}}, changed);
  EXPECT_EQ(changed.nodes[0], plan().nodes[0]) << "uverbs1 is another one";
  EXPECT_EQ(changed.nodes[1].path, "/dev/infiniband/uverbs32");
  EXPECT_EQ(changed.nodes[1].major, 510U);
  EXPECT_EQ(changed.nodes[1].minor, 0U);
  // The same number with another device number.
  changed = plan();
  renumber(inventory(), {{"mlx5_1", 1, "509:3"}}, changed);
  EXPECT_EQ(changed.nodes[0].path, "/dev/infiniband/uverbs1");
  EXPECT_EQ(changed.nodes[0].major, 509U);
}

TEST(Renumber, DevicesThatSwappedTheirNumbers) {
  Plan changed = plan();
  renumber(inventory(), {{"mlx5_1", 10, "231:202"}, {"rxe0", 1, "231:193"}}, changed);
  EXPECT_EQ(changed.nodes[0], node("/dev/infiniband/uverbs10", 202));
  EXPECT_EQ(changed.nodes[1], node("/dev/infiniband/uverbs1", 193));
}

TEST(Renumber, WhatIsNotThereChangesNothing) {
  fabric::Inventory without_node = inventory();
  without_node.hcas[1].uverbs.reset();
  const std::pair<fabric::Inventory, NewNode> rows[] = {{inventory(), {"mlx5_9", 7, "231:199"}},
                                                        {inventory(), {"mlx5_0", 7, "231:199"}},
                                                        {inventory(), {"mlx5_1", 7, "231"}},
                                                        {inventory(), {"mlx5_1", 7, ""}},
                                                        {without_node, {"mlx5_1", 7, "231:199"}}};
  for (const auto& [from, node] : rows) {
    Plan changed = plan();
    renumber(from, {node}, changed);
    EXPECT_EQ(changed.nodes, plan().nodes) << node.hca << " " << node.dev;
  }
}

class FindUverbs : public testing::Test {
 protected:
  void device(const std::string& name, const char* hca, const char* dev) {
    write_file(temp_ / ("class/infiniband_verbs/" + name + "/ibdev"), std::string(hca) + "\n");
    if (dev) write_file(temp_ / ("class/infiniband_verbs/" + name + "/dev"), std::string(dev) + "\n");
  }
  // "uverbsN MAJ:MIN".
  std::string found(const std::string& hca) {
    const fabric::UniqueFd sys(::open(temp_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto node = find_uverbs(sys.get(), hca);
    if (!node) return "none";
    EXPECT_EQ(node->hca, hca);
    return fmt::format("uverbs{} {}", node->uverbs, node->dev);
  }
  TempDir temp_;
};

TEST_F(FindUverbs, ByTheNameOfItsDevice) {
  EXPECT_EQ(found("mlx5_0"), "none") << "no RDMA at all";
  device("uverbs0", "mlx5_1", "231:192");
  device("uverbs12", "mlx5_0", "231:204");
  device("uverbs40", "mlx5_10", "510:8");
  device("uverbsx", "mlx5_2", "231:9");
  device("other3", "mlx5_3", "231:9");
  device("uverbs5", "mlx5_5", nullptr);
  write_file(temp_ / "class/infiniband_verbs/abi_version", "6\n");
  EXPECT_EQ(found("mlx5_0"), "uverbs12 231:204");
  EXPECT_EQ(found("mlx5_1"), "uverbs0 231:192");
  EXPECT_EQ(found("mlx5_10"), "uverbs40 510:8");
  for (const char* hca : {"mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", ""})
    EXPECT_EQ(found(hca), "none") << hca;
}

TEST_F(FindUverbs, WithoutSysfs) {
  EXPECT_EQ(find_uverbs(-1, "mlx5_0").has_value(), false);
}

}  // namespace
}  // namespace hook
