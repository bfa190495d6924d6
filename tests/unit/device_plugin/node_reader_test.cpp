// What the plugin makes of a node that changes.
#include "shim/device_plugin/node_reader.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/inventories.hpp"
#include "support/tree.hpp"
#include "unit/ledger/scene.hpp"

namespace shim {
namespace {

class DevicePluginReader : public test_support::LedgerScene {
 protected:
  DevicePluginReader() {
    test_support::lay_out(test_support::rails(2, 16), temp_ / "node", {.full = true});
    test_support::write_file(temp_ / "config.json", R"({"networks": {"rails": {"child": "macvlan"}},
      "pools": [{"name": "rails", "modes": ["shared"], "limits": {"shared": 4}, "network": "rails", "resource": "rdma-init.io/rails"}]})");
    node_.config = {temp_ / "config.json", "", true};
    node_.root = temp_ / "node";
    node_.ledger = path_;
    reader_.emplace(node_, log_);
  }

  bool is_healthy() const {
    const auto& devices = reader_->resources().at(0).devices;
    return devices.size() > 1 && devices.front().problem.empty();
  }

  hook::NodeSettings node_;
  hook::Log log_ = hook::Log::to_stderr("rdma-device-plugin");
  std::optional<NodeReader> reader_;  // which knows the ledger from its begin
};

// `rdma-hook doctor` names its holder.
TEST_F(DevicePluginReader, AnHcaWhoseGidsMovedIsHealthy) {
  ASSERT_EQ(give(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
  ASSERT_TRUE(reader_->read());
  EXPECT_TRUE(is_healthy());
  fabric::Inventory inventory = test_support::rails(2, 16);
  for (fabric::GidEntry& gid : inventory.hcas[0].ports[0].gids)
    gid.index += 2;
  node_.root = temp_ / "moved";
  test_support::lay_out(inventory, node_.root, {.full = true});
  ASSERT_TRUE(reader_->read());
  EXPECT_TRUE(is_healthy());
}

// The kubelet fails a waiting pod for good that it assigns an unhealthy HCA to.
TEST_F(DevicePluginReader, WhatIsMissingRightAfterAReleaseIsNoChange) {
  const std::string uverbs = temp_ / "node/sys/class/infiniband_verbs/uverbs0";
  ASSERT_TRUE(reader_->read());
  const auto before = reader_->resources();
  ASSERT_TRUE(is_healthy());
  ASSERT_EQ(give(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
  ASSERT_TRUE(reader_->read());
  const auto announced = reader_->resources();
  ASSERT_TRUE(is_healthy());
  ASSERT_TRUE(ledger_.give_back(web_.key));
  ASSERT_TRUE(std::filesystem::exists(uverbs));
  std::filesystem::rename(uverbs, temp_ / "away");
  ASSERT_TRUE(reader_->read());
  EXPECT_EQ(reader_->resources(), announced);
  EXPECT_TRUE(reader_->settles_at());
  std::filesystem::rename(temp_ / "away", uverbs);
  ASSERT_TRUE(reader_->read());
  EXPECT_EQ(reader_->resources(), before);
}

TEST_F(DevicePluginReader, WhatIsMissingWithoutAGrantIsAChange) {
  ASSERT_TRUE(reader_->read());
  std::filesystem::remove_all(std::string(temp_ / "node/sys/class/infiniband_verbs/uverbs0"));
  ASSERT_TRUE(reader_->read());
  EXPECT_FALSE(is_healthy());
}

}  // namespace
}  // namespace shim
