// How the plugin reads a node that changes, and grants.
#include "shim/device_plugin/node_reader.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace shim {
namespace {

using hook::Mode;
using test_support::myself;

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
  base::Log log_ = base::Log::to_stderr("rdma-device-plugin");
  std::optional<NodeReader> reader_;  // has read the ledger since its begin
};

// `rdma-hook doctor` reports its owner.
TEST_F(DevicePluginReader, KeepsHcaHealthyWhenGidsMove) {
  ASSERT_EQ(allocate(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
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

// The kubelet rejects a waiting pod permanently if it assigns an unhealthy HCA to it.
TEST_F(DevicePluginReader, IgnoresMissingPartsAfterRelease) {
  const std::string uverbs = temp_ / "node/sys/class/infiniband_verbs/uverbs0";
  ASSERT_TRUE(reader_->read());
  const auto before = reader_->resources();
  ASSERT_TRUE(is_healthy());
  ASSERT_EQ(allocate(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
  ASSERT_TRUE(reader_->read());
  const auto announced = reader_->resources();
  ASSERT_TRUE(is_healthy());
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  ASSERT_TRUE(std::filesystem::exists(uverbs));
  std::filesystem::rename(uverbs, temp_ / "away");
  ASSERT_TRUE(reader_->read());
  EXPECT_EQ(reader_->resources(), announced);
  EXPECT_TRUE(reader_->settles_at());
  std::filesystem::rename(temp_ / "away", uverbs);
  ASSERT_TRUE(reader_->read());
  EXPECT_EQ(reader_->resources(), before);
}

TEST_F(DevicePluginReader, ReportsMissingPartsWithoutGrant) {
  ASSERT_TRUE(reader_->read());
  std::filesystem::remove_all(std::string(temp_ / "node/sys/class/infiniband_verbs/uverbs0"));
  ASSERT_TRUE(reader_->read());
  EXPECT_FALSE(is_healthy());
}

TEST_F(DevicePluginReader, FindsSilentChangeOfInfiniBandPort) {
  const std::string port = temp_ / "node/sys/class/infiniband/mlx5_0/ports/1";
  ASSERT_TRUE(reader_->read());
  EXPECT_FALSE(reader_->has_silent_state()) << "rtnetlink reports changes of RoCE ports";
  test_support::write_file(port + "/link_layer", "InfiniBand\n");
  ASSERT_TRUE(reader_->read());
  ASSERT_TRUE(reader_->has_silent_state());
  EXPECT_FALSE(reader_->has_silent_change());
  test_support::write_file(port + "/state", "1: DOWN\n");
  EXPECT_TRUE(reader_->has_silent_change());
  ASSERT_TRUE(reader_->read());
  EXPECT_FALSE(reader_->has_silent_change());
  std::filesystem::remove_all(std::string(temp_ / "node/sys/class/infiniband"));
  EXPECT_TRUE(reader_->has_silent_change());
}

TEST_F(DevicePluginReader, FindsEndOfContainerOutsideOfPods) {
  test_support::Child child;
  ASSERT_EQ(allocate(web_, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, {web_.key, "web", child.identity()}), "");
  ASSERT_TRUE(reader_->read());
  ASSERT_TRUE(reader_->has_silent_state());
  EXPECT_FALSE(reader_->has_silent_change());
  child.kill();
  EXPECT_TRUE(reader_->has_silent_change());
  ASSERT_TRUE(reader_->read());
  EXPECT_FALSE(reader_->has_silent_change());
}

TEST_F(DevicePluginReader, IsIncompleteAfterError) {
  ASSERT_TRUE(reader_->read());
  EXPECT_TRUE(reader_->is_complete());
  test_support::write_file(temp_ / "config.json", "{");
  ASSERT_TRUE(reader_->read()) << "the previous configuration stays in use";
  EXPECT_FALSE(reader_->is_complete());
}

// As after a start of the plugin while a pod has an HCA in its network namespace (RDMA subsystem in exclusive mode).
class DevicePluginAway : public test_support::LedgerScene {
 protected:
  DevicePluginAway() {
    fabric::Inventory left = test_support::rails(1, 16);
    test_support::lay_out(left, temp_ / "node", {.full = true});
    node_.config = {temp_ / "config.json", "", true};
    node_.root = temp_ / "node";
    node_.ledger = path_;
  }

  void configure(const std::string& selectors) {
    test_support::write_file(temp_ / "config.json",
                             R"({"pools": [{"name": "vfs", "modes": ["exclusive"], "resource": "rdma-init.io/vfs", )"
                             R"("selectors": )" +
                                 selectors + R"(}, {"name": "rest", "modes": ["exclusive"]}]})");
  }
  void add_function(const std::string& address) {
    const std::string function = temp_ / "node/sys/bus/pci/devices/" + address;
    test_support::write_file(function + "/vendor", "0x15b3\n");
    test_support::write_file(function + "/device", "0x101e\n");
    test_support::write_file(function + "/numa_node", "1\n");
    std::filesystem::create_directories(std::string(temp_ / "node/sys/bus/pci/drivers/mlx5_core"));
    std::filesystem::create_symlink("../../drivers/mlx5_core", function + "/driver");
  }
  // A pod holds this HCA exclusively.
  void hold(const std::string& name, const std::string& device) {
    hook::PlannedHca hca = test_support::kAlone;
    hca.name = name;
    hca.device = device;
    hook::GrantUser user{pod_.key, "c1", myself()};
    user.pod = "sandbox";
    ASSERT_EQ(allocate(pod_, {hca}, user), "");
  }
  // Returns the devices that a plugin announces that starts now.
  std::string announced() {
    NodeReader reader(node_, log_);
    if (!reader.read() || !reader.read()) return "not read";
    std::vector<std::string> devices;
    for (const Resource& resource : reader.resources()) {
      for (const CountedDevice& device : resource.devices)
        devices.push_back(device.id + (device.problem.empty() ? "" : "(" + device.problem + ")"));
    }
    return base::join(devices, " ");
  }

  hook::NodeSettings node_;
  base::Log log_ = base::Log::to_stderr("rdma-device-plugin");
};

TEST_F(DevicePluginAway, AnnouncesHcaThatPodHasSinceBefore) {
  add_function("0000:3b:00.1");
  hold("mlx5_7", "0000.3b.00.1");
  const struct {
    const char* selectors;
    const char* expected;
  } rows[] = {{"{}", "mlx5_0 mlx5_7"},
              {R"({"vendors": ["15b3"], "deviceIDs": ["101e"], "drivers": ["mlx5_core"]})", "mlx5_7"},
              {R"({"deviceIDs": ["1021"]})", "mlx5_0"},
              // The record of its rail would have the name.
              {R"({"ifNames": ["vf*"]})", ""}};
  for (const auto& row : rows) {
    configure(row.selectors);
    EXPECT_EQ(announced(), row.expected) << row.selectors;
  }
}

TEST_F(DevicePluginAway, SelectsByNetdevOfTheRecord) {
  add_function("0000:3b:00.1");
  hold("mlx5_7", "0000.3b.00.1");
  hook::NetworkRecord record;
  record.key = pod_.key;
  record.rails.emplace_back();
  record.rails[0].rail.hca = "mlx5_7";
  record.rails[0].rail.kind = hook::RailKind::kMove;
  record.rails[0].rail.name = "net1";
  record.rails[0].host.name = "vf7";
  record.rails[0].host.mac = {2, 0, 0, 0, 0, 7};
  ASSERT_TRUE(hook::NetworkRecordStore::open(path_).value().write(record));
  configure(R"({"ifNames": ["vf*"], "linkTypes": ["ether"]})");
  EXPECT_EQ(announced(), "mlx5_7");
  configure(R"({"linkTypes": ["infiniband"]})");
  EXPECT_EQ(announced(), "");
}

TEST_F(DevicePluginAway, DoesNotAnnounceHcaWithoutItsFunctionOrItsName) {
  configure("{}");
  hold("mlx5_7", "0000.3b.00.1");
  EXPECT_EQ(announced(), "mlx5_0") << "the VF was removed";
  ASSERT_TRUE(ledger_.release_grant(pod_.key));
  add_function("0000:3b:00.1");
  hold("mlx5_0", "0000.3b.00.1");
  EXPECT_EQ(announced(), "mlx5_0") << "another HCA has its name now";
}

}  // namespace
}  // namespace shim
