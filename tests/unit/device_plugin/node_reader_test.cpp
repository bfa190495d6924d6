// What the plugin says of a container's rail whose GID is at another index than at the container's start: once each
// time that it moves, and counted.
#include "shim/device_plugin/node_reader.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "hook/metrics/counters.hpp"
#include "hook/rails/record/store.hpp"
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

  // A container with one rail, 10.1.0.1 at index 3 when it started.
  void give_rail() {
    ASSERT_EQ(give(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
    hook::RailRecord rail;
    rail.rail.hca = "mlx5_0";
    rail.rail.kind = hook::RailKind::kMacvlan;
    rail.rail.addresses = {{test_support::address("10.1.0.1"), 24, {}}};
    rail.gid_index = 3;
    const auto records = hook::NetworkRecordStore::open(path_);
    ASSERT_TRUE(records && records->write({web_.key, {}, 1, {rail}}));
  }

  // index: nullopt: nowhere.
  void put_gid(std::optional<unsigned> index) {
    const std::string port = temp_ / "node/sys/class/infiniband/mlx5_0/ports/1";
    for (unsigned slot = 2; slot < 8; ++slot) {
      const bool here = slot == index;
      std::filesystem::remove(fmt::format("{}/gids/{}", port, slot));  // the tree's empty slots are one file
      test_support::write_file(
          fmt::format("{}/gids/{}", port, slot),
          here ? "0000:0000:0000:0000:0000:ffff:0a01:0001\n" : "0000:0000:0000:0000:0000:0000:0000:0000\n");
      test_support::write_file(fmt::format("{}/gid_attrs/types/{}", port, slot), here ? "RoCE v2\n" : "");
      test_support::write_file(fmt::format("{}/gid_attrs/ndevs/{}", port, slot), here ? "rail0\n" : "");
    }
  }

  // The lines about it of one reading.
  std::string said() {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(reader_->read());
    const std::string all = testing::internal::GetCapturedStderr();
    std::string lines;
    for (std::size_t at = all.find("gid_moved"); at != std::string::npos; at = all.find("gid_moved", at + 1))
      lines += all.substr(at, all.find('\n', at) - at) + "\n";
    return lines;
  }

  // -1: not counted.
  int moves() const {
    const auto counters = hook::Counters::open_to_read(path_);
    const auto samples = counters ? counters->read() : fabric::Result<std::vector<hook::Sample>>(counters.error());
    if (!samples) return -1;
    for (const hook::Sample& sample : *samples) {
      if (sample.name == hook::kGidMovesTotal && sample.labels == hook::Labels{{"hca", "mlx5_0"}})
        return static_cast<int>(sample.value);
    }
    return -1;
  }

  bool is_healthy() const {
    const auto& devices = reader_->resources().at(0).devices;
    return devices.size() > 1 && devices.front().problem.empty();
  }

  hook::NodeSettings node_;
  hook::Log log_ = hook::Log::to_stderr("rdma-device-plugin");
  std::optional<NodeReader> reader_;  // which knows the ledger from its begin
};

TEST_F(DevicePluginReader, AHoldersGidThatMovedIsALineAndACount) {
  give_rail();
  EXPECT_EQ(said(), "");
  EXPECT_EQ(moves(), -1);
  const std::string line =
      fmt::format("gid_moved holder=\"container web\" key={} hca=mlx5_0 gid=10.1.0.1 from=3 to=", web_.key);
  put_gid(5);
  EXPECT_EQ(said(), line + "5\n");
  EXPECT_EQ(moves(), 1);
  EXPECT_TRUE(is_healthy());
  EXPECT_EQ(said(), "") << "it is where it was";
  put_gid(std::nullopt);
  EXPECT_EQ(said(), line + "-\n");
  put_gid(3);
  EXPECT_EQ(said(), "") << "it is back";
  put_gid(5);
  EXPECT_EQ(said(), line + "5\n");
  EXPECT_EQ(moves(), 3);
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
