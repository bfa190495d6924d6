// The devices of a node, why one is not healthy, and which are preferred.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "shim/device_plugin/resources.hpp"
#include "support/inventories.hpp"
#include "support/rails.hpp"

namespace shim {
namespace {

using hook::Mode;

constexpr const char* kRails = "rdma-init.io/rails";

hook::Config config_of(Mode mode, unsigned limit = 0, bool with_network = false) {
  hook::Config config;
  hook::Pool pool{.name = "p", .selectors = {}, .modes = {mode}, .limits = {}, .network = std::nullopt};
  if (limit > 0) pool.limits = {{mode, limit}};
  if (with_network) {
    config.networks = {{"n", {"n", std::nullopt, "macvlan", std::nullopt}}};
    pool.network = "n";
  }
  pool.resource = kRails;
  config.pools = {pool};
  return config;
}

HcaHold foreign_hold(std::string owner, unsigned units = 1, bool exclusive = false) {
  HcaHold hold;
  if (exclusive) hold.foreign.exclusive_owner = std::move(owner);
  hold.foreign.others = units;
  hold.units = units;
  return hold;
}

// "mlx5_0 mlx5_1(problem)".
std::string shown(const Resource& resource) {
  std::vector<std::string> parts;
  for (const CountedDevice& device : resource.devices)
    parts.push_back(device.id + (device.problem.empty() ? "" : "(" + device.problem + ")"));
  return base::join(parts, " ");
}

std::string counted(const fabric::Inventory& inventory, const hook::Config& config, const HcaHolds& holds = {},
                    const std::vector<Resource>& before = {}) {
  const auto resources = count_resources(inventory, config, holds, before);
  return resources.size() == 1 ? shown(resources.front()) : fmt::format("{} resources", resources.size());
}

Resource resource_of(const fabric::Inventory& inventory, const hook::Config& config) {
  return count_resources(inventory, config, {}, {}).at(0);
}

TEST(DevicePlugin, AnnouncesOneDevicePerUnit) {
  EXPECT_EQ(counted(test_support::rails(2), config_of(Mode::kExclusive)), "mlx5_0 mlx5_1");
  EXPECT_EQ(counted(test_support::rails(1), config_of(Mode::kHca, 3)), "mlx5_0#1 mlx5_0#2 mlx5_0#3");
  EXPECT_EQ(counted(test_support::rails(1, 4), config_of(Mode::kShared, 2)), "mlx5_0#1 mlx5_0#2")
      << "a pool without children";
}

TEST(DevicePlugin, BoundsChildrenByGidTable) {
  // The node uses four GIDs, a child takes four.
  EXPECT_EQ(counted(test_support::rails(1, 16), config_of(Mode::kShared, 100, true)),
            "mlx5_0#1 mlx5_0#2 mlx5_0#3 mlx5_0#4(mlx5_0 has 12 of 16 GID slots free, a child netdev needs 4)");
  // Units that are held have their GIDs in the table.
  fabric::Inventory node = test_support::rails(1, 16);
  for (unsigned index = 4; index < 12; ++index)
    node.hcas[0].ports[0].gids.push_back(test_support::v2(index, fmt::format("10.9.0.{}", index)));
  HcaHold held;
  held.units = 2;
  EXPECT_EQ(counted(node, config_of(Mode::kShared, 3, true), {{"mlx5_0", held}}), "mlx5_0#1 mlx5_0#2 mlx5_0#3");
  // GIDs without a grant take slots too.
  const std::string full = "(mlx5_0 has 4 of 16 GID slots free, a child netdev needs 4)";
  EXPECT_EQ(counted(node, config_of(Mode::kShared, 3, true)), "mlx5_0#1 mlx5_0#2" + full + " mlx5_0#3" + full);
}

TEST(DevicePlugin, AnnouncesResourceOfEachPool) {
  hook::Config config = config_of(Mode::kExclusive);
  config.pools[0].selectors.if_names = {"rail0"};
  config.pools.push_back(config.pools[0]);
  config.pools[1].selectors.if_names = {"rail1"};
  EXPECT_EQ(counted(test_support::rails(3), config), "mlx5_0 mlx5_1") << "several pools with one resource";
  config.pools[1].resource = "a.io/b";
  const auto resources = count_resources(test_support::rails(3), config, {}, {});
  ASSERT_EQ(resources.size(), 2U);
  EXPECT_EQ(resources[0].name + ": " + shown(resources[0]), "a.io/b: mlx5_1");
  EXPECT_EQ(resources[1].name + ": " + shown(resources[1]), "rdma-init.io/rails: mlx5_0");
  config.pools[0].resource.reset();
  config.pools[1].resource.reset();
  EXPECT_EQ(counted(test_support::rails(3), config), "0 resources");
  EXPECT_EQ(counted({}, config_of(Mode::kExclusive)), "") << "a resource without HCAs";
}

TEST(DevicePlugin, ReportsCauseOfUnhealthyDevice) {
  fabric::Inventory node = test_support::rails(3);
  node.hcas[0].ports[0].state = "1: DOWN";
  node.hcas[1].uverbs.reset();
  node.unread.push_back({fabric::Unread::Part::kNodes, "/sys/x", EACCES, "mlx5_2"});
  EXPECT_EQ(counted(node, config_of(Mode::kExclusive)),
            "mlx5_0(mlx5_0 has no active port: port 1 is DOWN) mlx5_1(mlx5_1 has no device node) "
            "mlx5_2(mlx5_2 cannot read `/sys/x`: Permission denied)");
  node = test_support::rails(1);
  node.hcas[0].ports.push_back(node.hcas[0].ports[0]);
  node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(counted(node, config_of(Mode::kExclusive)), "mlx5_0") << "the other port is active";
}

TEST(DevicePlugin, ExcludesUnitsOfForeignOwners) {
  const fabric::Inventory node = test_support::rails(1);
  EXPECT_EQ(counted(node, config_of(Mode::kExclusive), {{"mlx5_0", foreign_hold("container web-1", 1, true)}}),
            "mlx5_0(mlx5_0 is held by container web-1)");
  EXPECT_EQ(counted(node, config_of(Mode::kExclusive), {{"mlx5_0", foreign_hold("", 2)}}),
            "mlx5_0(mlx5_0 is shared with 2 other users)");
  EXPECT_EQ(counted(node, config_of(Mode::kShared, 2), {{"mlx5_0", foreign_hold("container w", 1, true)}}),
            "mlx5_0#1(mlx5_0 is held by container w) mlx5_0#2(mlx5_0 is held by container w)");
  EXPECT_EQ(counted(node, config_of(Mode::kShared, 3), {{"mlx5_0", foreign_hold("", 1)}}),
            "mlx5_0#1 mlx5_0#2 mlx5_0#3(mlx5_0 has 1 of 3 units allocated outside of Kubernetes)");
  HcaHold pods;
  pods.units = 1;
  EXPECT_EQ(counted(node, config_of(Mode::kExclusive), {{"mlx5_0", pods}}), "mlx5_0") << "held by a pod of Kubernetes";
  fabric::Inventory with_vf = test_support::rails(2);
  with_vf.hcas[1].physfn = with_vf.hcas[0].pci;
  with_vf.hcas[1].pfs = {"mlx5_0"};
  EXPECT_EQ(counted(with_vf, config_of(Mode::kExclusive), {{"mlx5_0", foreign_hold("container w", 1, true)}}),
            "mlx5_0(mlx5_0 is held by container w) mlx5_1(mlx5_1 is a VF of mlx5_0, which is held by container w)");
}

TEST(DevicePlugin, KeepsMissingHca) {
  const hook::Config config = config_of(Mode::kExclusive);
  const auto before = count_resources(test_support::rails(2), config, {}, {});
  const fabric::Inventory left = test_support::rails(1);
  EXPECT_EQ(counted(left, config, {}, before), "mlx5_0 mlx5_1(mlx5_1 is no longer on the node)");
  HcaHold pods;
  pods.units = 1;
  EXPECT_EQ(counted(left, config, {{"mlx5_1", pods}}, before), "mlx5_0 mlx5_1") << "in a pod";
  EXPECT_EQ(counted(left, config, {{"mlx5_1", foreign_hold("container w", 1, true)}}, before),
            "mlx5_0 mlx5_1(mlx5_1 is held by container w)");
  const auto away = count_resources(left, config, {}, before);
  EXPECT_EQ(counted(test_support::rails(2), config, {}, away), "mlx5_0 mlx5_1") << "the HCA is on the node again";
  hook::Config none = config;
  none.pools[0].resource.reset();
  EXPECT_EQ(counted(left, none, {}, before), "0 resources");
}

// The device node, the port, or the HCA itself is missing for a while after a grant or release.
TEST(DevicePlugin, WithholdsPassingProblemsAfterRelease) {
  const auto start = std::chrono::steady_clock::time_point(std::chrono::hours(1));
  const hook::Config config = config_of(Mode::kExclusive);
  const auto before = count_resources(test_support::rails(2), config, {}, {});
  fabric::Inventory nodeless = test_support::rails(2);
  nodeless.hcas[1].uverbs.reset();
  fabric::Inventory down = test_support::rails(2);
  down.hcas[1].ports[0].state = std::string("1: DOWN");
  const Moments moved{{"mlx5_1", start}};
  for (const fabric::Inventory& node : {nodeless, down, test_support::rails(1)}) {
    const auto problem = count_resources(node, config, {}, before);
    ASSERT_NE(problem, before);
    auto now = problem;
    keep_settling(before, moved, start + std::chrono::seconds(5), now);
    EXPECT_EQ(now, before) << shown(problem.at(0));
    now = problem;
    keep_settling(before, moved, start + kSettling, now);
    EXPECT_EQ(now, problem) << "after the time for settling";
    keep_settling(before, {{"mlx5_0", start}}, start + std::chrono::seconds(5), now);
    EXPECT_EQ(now, problem) << "a release of another HCA";
    now = problem;
    keep_settling(problem, moved, start + std::chrono::seconds(5), now);
    EXPECT_EQ(now, problem) << "it was not healthy before";
  }
  const auto held =
      count_resources(test_support::rails(2), config, {{"mlx5_1", foreign_hold("container w", 1, true)}}, {});
  auto now = held;
  keep_settling(before, moved, start, now);
  EXPECT_EQ(now, held) << "a foreign owner is not a passing problem";
}

TEST(DevicePlugin, ReportsHcaWithUnknownPool) {
  hook::Config config = config_of(Mode::kExclusive);
  config.pools[0].selectors.vendors = {"15b3"};
  fabric::Inventory node = test_support::rails(1);
  node.hcas[0].vendor = "0x15b3";
  const auto before = count_resources(node, config, {}, {});
  ASSERT_EQ(shown(before.at(0)), "mlx5_0");
  node.hcas[0].vendor.reset();
  node.unread.push_back({fabric::Unread::Part::kPool, "/sys/v", EIO, "mlx5_0"});
  EXPECT_EQ(counted(node, config, {}, before),
            "mlx5_0(mlx5_0 its pool is unknown: cannot read `/sys/v`: Input/output error)");
  EXPECT_EQ(counted(node, config), "");
}

TEST(DevicePlugin, ReportsTopologyAndNodes) {
  fabric::Inventory node = test_support::rails(2);
  node.hcas[1].numa_node = -1;
  const Resource resource = resource_of(node, config_of(Mode::kHca, 2));
  EXPECT_EQ(resource.hcas[0].numa_node, 0);
  EXPECT_EQ(resource.hcas[1].numa_node, std::nullopt);
  const auto hcas = hcas_of(resource, std::vector<std::string>{"mlx5_1#2", "mlx5_1#1", "mlx5_0#1"});
  ASSERT_TRUE(hcas);
  EXPECT_EQ(base::join(nodes_of(*hcas), " "), "/dev/infiniband/uverbs0 /dev/infiniband/rdma_cm /dev/infiniband/uverbs1")
      << "several IDs of one HCA have one node";
}

TEST(DevicePlugin, RefusesInvalidAllocations) {
  fabric::Inventory node = test_support::rails(1);
  node.hcas[0].ports[0].state = "1: DOWN";
  const Resource resource = resource_of(node, config_of(Mode::kExclusive));
  EXPECT_EQ(hcas_of(resource, std::vector<std::string>{"mlx5_\n9"}).error().message,
            "rdma-init.io/rails has no device `mlx5_?9`");
  EXPECT_EQ(hcas_of(resource, std::vector<std::string>{"mlx5_0"}).error().message,
            "mlx5_0 has no active port: port 1 is DOWN");
}

std::vector<std::string> ids_of(const Resource& resource) {
  std::vector<std::string> ids;
  for (const CountedDevice& device : resource.devices)
    ids.push_back(device.id);
  return ids;
}

std::string preferred(const Resource& resource, const std::vector<std::string>& available,
                      const std::vector<std::string>& must, std::size_t size) {
  const auto ids = preferred_ids(resource, available, must, size);
  return ids ? base::join(*ids, " ") : ids.error().message;
}

TEST(DevicePlugin, PrefersDistinctHcas) {
  const Resource resource = resource_of(test_support::rails(3), config_of(Mode::kHca, 2));
  const auto all = ids_of(resource);
  EXPECT_EQ(preferred(resource, all, {}, 0), "");
  EXPECT_EQ(preferred(resource, all, {}, 3), "mlx5_0#1 mlx5_1#1 mlx5_2#1");
  EXPECT_EQ(preferred(resource, all, {}, 5), "mlx5_0#1 mlx5_1#1 mlx5_2#1 mlx5_0#2 mlx5_1#2");
  EXPECT_EQ(preferred(resource, all, {"mlx5_1#2"}, 2), "mlx5_1#2 mlx5_0#1");
  EXPECT_EQ(preferred(resource, all, {"mlx5_1#1", "mlx5_1#2"}, 3), "mlx5_1#1 mlx5_1#2 mlx5_0#1");
  EXPECT_EQ(preferred(resource, {"mlx5_0#2", "mlx5_1#1", "mlx5_1#2"}, {}, 1), "mlx5_1#1")
      << "the HCA with more free IDs";
}

TEST(DevicePlugin, PrefersNearHcas) {
  fabric::Inventory node = test_support::rails(6);
  const char* roots[] = {"0000:00:01.0", "0000:00:01.0", "0000:40:01.0",
                         "0000:40:01.0", "0000:40:01.0", "0000:80:01.0"};
  for (unsigned i = 0; i < 6; ++i) {
    node.hcas[i].pci_path = std::vector<std::string>{roots[i]};
    node.hcas[i].numa_node = i < 2 ? 0 : 1;
  }
  const Resource resource = resource_of(node, config_of(Mode::kExclusive));
  const auto all = ids_of(resource);
  EXPECT_EQ(preferred(resource, all, {}, 1), "mlx5_0");
  EXPECT_EQ(preferred(resource, all, {}, 2), "mlx5_0 mlx5_1");
  EXPECT_EQ(preferred(resource, all, {}, 3), "mlx5_2 mlx5_3 mlx5_4");
  EXPECT_EQ(preferred(resource, all, {}, 4), "mlx5_2 mlx5_3 mlx5_4 mlx5_5") << "then of the same NUMA node";
  EXPECT_EQ(preferred(resource, all, {"mlx5_5"}, 2), "mlx5_5 mlx5_2");
  EXPECT_EQ(preferred(resource, {"mlx5_0", "mlx5_3", "mlx5_4"}, {}, 2), "mlx5_3 mlx5_4");
}

TEST(DevicePlugin, PrefersPlanesInPciOrder) {
  fabric::Inventory node = test_support::rails(6);
  for (fabric::Hca& hca : node.hcas) {
    hca.pci_path = std::vector<std::string>{"0000:00:01.0"};
    hca.numa_node = 0;
  }
  hook::Config config = config_of(Mode::kExclusive);
  // In PCI order the planes are 1 0 0 1 1, and mlx5_5 is of no rail.
  const std::pair<const char*, unsigned> planes[] = {
      {"mlx5_0", 1}, {"mlx5_1", 0}, {"mlx5_2", 0}, {"mlx5_3", 1}, {"mlx5_4", 1}};
  for (const auto& [name, plane] : planes) {
    config.rails.push_back(test_support::rails_of(fmt::format("[\"{}\"]", name)).front());
    config.rails.back().plane = plane;
  }
  const Resource resource = resource_of(node, config);
  const auto all = ids_of(resource);
  EXPECT_EQ(preferred(resource, all, {}, 2), "mlx5_1 mlx5_3");
  EXPECT_EQ(preferred(resource, {"mlx5_0", "mlx5_1", "mlx5_2"}, {}, 2), "mlx5_1 mlx5_0") << "none is in order";
  EXPECT_EQ(preferred(resource, all, {"mlx5_4"}, 2), "mlx5_4 mlx5_1");
}

// Four HCAs of 400 Gb/s, and one of 25 Gb/s that is nearest to two of them.
TEST(DevicePlugin, PrefersOneRateAndLinkLayer) {
  fabric::Inventory node = test_support::rails(6);
  const auto set = [&](std::size_t hca, const char* rate, const char* link_layer, int numa_node) {
    node.hcas[hca].ports[0].rate = std::string(rate);
    node.hcas[hca].ports[0].link_layer = std::string(link_layer);
    node.hcas[hca].numa_node = numa_node;
  };
  for (const std::size_t hca : {0U, 1U, 3U, 5U})
    set(hca, "400 Gb/sec (4X NDR)", "Ethernet", hca < 2 ? 0 : 1);
  set(2, "25 Gb/sec (1X EDR)", "Ethernet", 0);
  set(4, "400 Gb/sec (4X NDR)", "InfiniBand", 0);
  hook::Config config = config_of(Mode::kExclusive);
  config.pools[0].selectors.link_types = {"ether", "infiniband"};
  const Resource resource = resource_of(node, config);
  const auto all = ids_of(resource);
  EXPECT_EQ(preferred(resource, all, {}, 1), "mlx5_4") << "InfiniBand on a tie, as rdma-init";
  EXPECT_EQ(preferred(resource, all, {}, 2), "mlx5_0 mlx5_1");
  EXPECT_EQ(preferred(resource, all, {}, 4), "mlx5_0 mlx5_1 mlx5_3 mlx5_5");
  EXPECT_EQ(preferred(resource, all, {}, 5), "mlx5_4 mlx5_0 mlx5_1 mlx5_3 mlx5_5")
      << "no kind has five HCAs: the fastest first";
  EXPECT_EQ(preferred(resource, all, {"mlx5_3"}, 2), "mlx5_3 mlx5_5");
  EXPECT_EQ(preferred(resource, all, {"mlx5_2"}, 1), "mlx5_2");
  EXPECT_EQ(preferred(resource, {"mlx5_2", "mlx5_3"}, {}, 1), "mlx5_3");
}

TEST(DevicePlugin, AnnouncesOneRateAndLinkLayerWithoutSelectors) {
  fabric::Inventory node = test_support::rails(5);
  const hook::Config config = config_of(Mode::kExclusive);
  const auto before = count_resources(node, config, {}, {});
  node.hcas[1].ports[0].rate = std::string("25 Gb/sec (1X EDR)");
  node.hcas[3].ports[0].link_layer = std::string("InfiniBand");
  EXPECT_EQ(counted(node, config), "mlx5_0 mlx5_2 mlx5_4");
  EXPECT_EQ(counted(node, config, {}, before), "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4") << "announced HCAs stay";
  // The kind of an HCA that is down, or with an unreadable rate, is unknown.
  node.hcas[1].ports[0].state = std::string("1: DOWN");
  node.hcas[3].ports[0].rate = std::string("?");
  EXPECT_EQ(counted(node, config), "mlx5_0 mlx5_1(mlx5_1 has no active port: port 1 is DOWN) mlx5_2 mlx5_3 mlx5_4");
  hook::Config chosen = config;
  chosen.pools[0].selectors.link_types = {"ether", "infiniband"};
  node.hcas[3].ports[0].rate = std::string("25 Gb/sec (1X EDR)");
  EXPECT_EQ(counted(node, chosen), "mlx5_0 mlx5_1(mlx5_1 has no active port: port 1 is DOWN) mlx5_2 mlx5_3 mlx5_4");
}

TEST(DevicePlugin, RefusesInvalidPreferenceRequests) {
  const Resource resource = resource_of(test_support::rails(2), config_of(Mode::kExclusive));
  EXPECT_EQ(preferred(resource, {"mlx5_0"}, {}, 2), "the kubelet requests 2 devices and offers 1");
  EXPECT_EQ(preferred(resource, {"mlx5_0", "mlx5_0"}, {}, 2), "the kubelet requests 2 devices and offers 1");
  EXPECT_EQ(preferred(resource, {"mlx5_0", "mlx5_1"}, {"mlx5_0", "mlx5_1"}, 1),
            "the kubelet requests 1 devices and names 2 that must be among them");
  EXPECT_EQ(preferred(resource, {"mlx5_0"}, {"mlx5_1"}, 1), "device `mlx5_1` is not available");
  EXPECT_EQ(preferred(resource, {"x", "y", "mlx5_1"}, {"y"}, 3), "y mlx5_1 x") << "IDs of an earlier list";
}

TEST(DevicePlugin, ShortensSocketNames) {
  EXPECT_EQ(socket_name("vke.volcengine.com/rdma"), "rdma-init-vke.volcengine.com_rdma.sock");
  EXPECT_EQ(socket_name(std::string(60, 'a') + ".io/b").size(), std::string("rdma-init-.sock").size() + 32);
}

// Published nodes: the number of devices and of healthy ones.
TEST(DevicePlugin, CountsDevicesOfPublishedNodes) {
  for (const auto& [file, devices, usable] : {std::tuple("14-h100-ib-half-down", 13U, 4U),
                                              {"20-hgx-rails-plus-bond0", 10U, 8U},
                                              {"10-azure-ndv5-host", 8U, 8U}}) {
    const auto node = fabric::read_snapshot(fmt::format("{}/{}.json", FIXTURES, file));
    ASSERT_TRUE(node) << file;
    const Resource resource = resource_of(*node, config_of(Mode::kExclusive));
    std::size_t healthy = 0;
    for (const CountedDevice& device : resource.devices)
      healthy += device.problem.empty() ? 1 : 0;
    EXPECT_EQ(resource.devices.size(), devices) << file << ": " << shown(resource);
    EXPECT_EQ(healthy, usable) << file;
  }
}

}  // namespace
}  // namespace shim
