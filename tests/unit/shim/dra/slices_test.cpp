// The ResourceSlices of a node. Each is checked by SliceRules, and those of recorded nodes are compared with the files
// of tests/golden/slices. With RDMA_INIT_WRITE_SLICES=1 the test writes these files.
#include "shim/dra/slices.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "hook/config/read_config.hpp"
#include "support/inventories.hpp"
#include "support/slice_rules.hpp"
#include "support/temp_dir.hpp"

namespace shim {
namespace {

namespace fs = std::filesystem;
using base::Json;
using test_support::SliceRules;

hook::Config configured(const std::string& text) {
  const auto config = hook::valid_config({{"config.json", text}});
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : hook::Config();
}
hook::Config pool_of(const std::string& members) {
  return configured(R"({"networks": {"n": {"child": "macvlan"}}, "pools": [{"name": "rails", )" + members + "}]}");
}
const char* const kExclusive = R"("modes": ["exclusive"])";
const char* const kShared = R"("modes": ["shared"], "limits": {"shared": 4})";

struct Slices {
  std::vector<Json> slices;
  std::vector<std::string> warnings;
  std::size_t left_out = 0;
};

Slices slices_of(const fabric::Inventory& inventory, const hook::Config& config, unsigned minor = 36,
                 const HcaHolds& holds = {}, const hook::HcaDevices& devices = {}) {
  const SliceCluster cluster{.node = "n1", .node_uid = "u-1", .minor = minor};
  const auto published = published_devices(inventory, config, device_names(inventory, devices), holds, cluster);
  Slices result{resource_slices(published.devices, cluster), published.warnings, published.left_out};
  EXPECT_EQ(SliceRules(minor).faults_of(result.slices), "");
  return result;
}

// Returns the devices of all slices as "NAME NAME(TAINT)".
std::string shown_devices(const Slices& slices) {
  std::vector<std::string> parts;
  for (const Json& slice : slices.slices) {
    for (const Json& device : slice["spec"]["devices"])
      parts.push_back(device["name"].get<std::string>() +
                      (device.contains("taints") ? "(" + device["taints"][0]["key"].get<std::string>() + ")" : ""));
  }
  return base::join(parts, " ");
}

Json device_at(const Slices& slices, std::size_t at) {
  return slices.slices.at(0).at("spec").at("devices").at(at);
}

// Two rails with a PCI address each.
fabric::Inventory two_rails() {
  fabric::Inventory node = test_support::rails(2);
  const char* const places[] = {"0000:81:00.0", "0000:3b:00.0"};
  for (std::size_t at = 0; at < 2; ++at) {
    node.hcas[at].pci = places[at];
    for (fabric::Netdev& netdev : node.netdevs)
      if (netdev.name == "rail" + std::to_string(at)) netdev.pci = places[at];
  }
  return node;
}

TEST(DraSlices, ListsHcasInTheOrderOfRails) {
  auto config = pool_of(kExclusive);
  EXPECT_EQ(shown_devices(slices_of(two_rails(), config)), "pci-0000-3b-00-0 pci-0000-81-00-0");
  config = configured(R"({"pools": [{"name": "rails", "modes": ["exclusive"]}], "rails": ["mlx5_0", "mlx5_1"]})");
  const Slices slices = slices_of(two_rails(), config);
  EXPECT_EQ(shown_devices(slices), "pci-0000-81-00-0 pci-0000-3b-00-0");
  EXPECT_EQ(device_at(slices, 1)["attributes"]["rail"], Json({{"int", 1}}));
  EXPECT_EQ(slices.slices[0]["metadata"].dump(),
            R"({"name":"00000-rdma-init.io-n1","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1",)"
            R"("uid":"u-1","controller":true}]})");
}

TEST(DraSlices, StatesPlaceAndKindOfHca) {
  fabric::Inventory node = two_rails();
  node.hcas[1].class_link = "../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_1";
  node.hcas[1].numa_node = 1;
  node.hcas[1].physfn = "0000:3b:00.7";
  node.hcas[0].class_link = "../../devices/virtual/infiniband/mlx5_0";
  node.hcas[0].numa_node = -1;
  const Slices slices = slices_of(node, pool_of(kExclusive));
  const Json near = device_at(slices, 0)["attributes"];
  EXPECT_EQ(near["resource.kubernetes.io/pcieRoot"]["string"], "pci0000:3a");
  EXPECT_EQ(near["resource.kubernetes.io/pciBusID"]["string"], "0000:3b:00.0");
  EXPECT_EQ(near["resource.kubernetes.io/numaNode"]["int"], 1);
  EXPECT_EQ(near["pf"]["string"], "0000:3b:00.7");
  EXPECT_EQ(near["virtual"]["bool"], true);
  EXPECT_EQ(near["rateGbps"]["int"], 400);
  EXPECT_EQ(near["linkLayer"]["string"], "ethernet");
  EXPECT_EQ(near["netdev"]["string"], "rail1");
  EXPECT_EQ(near["dra.net/ifName"]["string"], "rail1");
  EXPECT_EQ(near["mode"]["string"], "exclusive");
  EXPECT_EQ(near["pool"]["string"], "rails");
  const Json far = device_at(slices, 1)["attributes"];
  EXPECT_FALSE(far.contains("resource.kubernetes.io/pcieRoot")) << "no device of PCI";
  EXPECT_FALSE(far.contains("resource.kubernetes.io/numaNode")) << "none";
}

TEST(DraSlices, LeavesOutValuesThatTheApiRefuses) {
  fabric::Inventory node = test_support::rails(1);
  node.hcas[0].driver = std::string(65, 'd');
  node.hcas[0].node_guid = "\xff";
  node.hcas[0].vendor = "x";
  const Json attributes = device_at(slices_of(node, pool_of(kExclusive)), 0)["attributes"];
  for (const char* name : {"driver", "guid", "vendor"})
    EXPECT_FALSE(attributes.contains(name)) << name;
}

TEST(DraSlices, NamesDevicesByLabels) {
  fabric::Inventory node = test_support::rails(7);
  const std::string names[] = {"mlx5_0", "MLX", "a.b", "x_", "rxe0", "sf0", std::string(63, 'n')};
  for (std::size_t at = 0; at < node.hcas.size(); ++at) {
    node.hcas[at].pci.reset();
    node.hcas[at].name = names[at];
  }
  const hook::HcaDevices devices{
      {"mlx5_0", "0000.81.00.0"}, {"rxe0", "guid.5054.00ff.fe12.3456"}, {"sf0", "mlx5_core.sf.2"}};
  const auto labels = device_names(node, devices);
  EXPECT_EQ(labels.at("mlx5_0"), "pci-0000-81-00-0");
  EXPECT_EQ(labels.at("rxe0"), "guid-5054-00ff-fe12-3456");
  EXPECT_EQ(labels.at("sf0"), "mlx5-core-sf-2");
  EXPECT_EQ(labels.at("a.b"), "a-b");
  EXPECT_EQ(labels.at(std::string(63, 'n')), std::string(63, 'n'));
  EXPECT_TRUE(labels.at("MLX").starts_with("hca-")) << labels.at("MLX");
  EXPECT_TRUE(labels.at("x_").starts_with("x--")) << labels.at("x_");
  slices_of(node, pool_of(kExclusive), 36, {}, devices);
}

// The HCAs of two subfunctions can have the address of one PCI function.
TEST(DraSlices, NamesEachHcaOfAFunction) {
  fabric::Inventory node = test_support::rails(3);
  for (fabric::Hca& hca : node.hcas)
    hca.pci = "0000:81:00.0";
  const auto labels = device_names(node, {});
  EXPECT_EQ(labels.at("mlx5_0"), "pci-0000-81-00-0");
  EXPECT_NE(labels.at("mlx5_1"), labels.at("mlx5_2"));
  EXPECT_EQ(shown_devices(slices_of(node, pool_of(kExclusive))).find(labels.at("mlx5_0")), 0U);
}

TEST(DraSlices, SharesHcaSinceKubernetes136) {
  const struct {
    const char* pool;
    const char* expected;  // the members after the attributes
  } rows[] = {
      {kExclusive, "{}"},
      {kShared,
       R"({"allowMultipleAllocations":true,"capacity":{"shares":{"value":"4","requestPolicy":{"default":"1","validValues":["1"]}}}})"},
      {R"("modes": ["shared"])", R"({"allowMultipleAllocations":true})"},
      {R"("modes": ["shared-multi"], "limits": {"shared-multi": 4})",
       R"({"allowMultipleAllocations":true,"capacity":{"shares":{"value":"4","requestPolicy":{"default":"1","validRange":{"min":"1","step":"1"}}}}})"},
      {R"("modes": ["shared"], "limits": {"shared": 2000})",
       R"({"allowMultipleAllocations":true,"capacity":{"shares":{"value":"2k","requestPolicy":{"default":"1","validValues":["1"]}}}})"},
      {R"("modes": ["shared-multi"], "limits": {"shared-multi": 1})",
       R"({"allowMultipleAllocations":true,"capacity":{"shares":{"value":"1","requestPolicy":{"default":"1","validRange":{"min":"1"}}}}})"},
      // The GID table has 8 slots, two for each child netdev, and two more with RoCE v1.
      {R"("modes": ["shared"], "limits": {"shared": 4}, "network": "n")",
       R"({"allowMultipleAllocations":true,"capacity":{"shares":{"value":"1","requestPolicy":{"default":"1","validValues":["1"]}}}})"}};
  for (const auto& row : rows) {
    Json device = device_at(slices_of(test_support::rails(1, 8), pool_of(row.pool)), 0);
    device.erase("name");
    device.erase("attributes");
    EXPECT_EQ(device.dump(), row.expected) << row.pool;
  }
}

TEST(DraSlices, LeavesOutSharedHcasBeforeKubernetes136) {
  for (const unsigned minor : {34U, 35U}) {
    const Slices shared = slices_of(two_rails(), pool_of(kShared), minor);
    EXPECT_EQ(shown_devices(shared), "");
    EXPECT_EQ(shared.slices.size(), 1U) << "an empty slice reports that the driver runs";
    ASSERT_EQ(shared.warnings.size(), 2U);
    EXPECT_NE(shared.warnings[0].find("mode shared of its pool needs Kubernetes 1.36"), std::string::npos);
    EXPECT_EQ(shown_devices(slices_of(two_rails(), pool_of(kExclusive), minor)), "pci-0000-3b-00-0 pci-0000-81-00-0");
  }
}

TEST(DraSlices, MarksHcaThatKubernetesMustNotAssign) {
  fabric::Inventory node = two_rails();
  node.hcas[1].ports[0].state = std::string("1: DOWN");
  node.hcas[0].uverbs.reset();
  auto slices = slices_of(node, pool_of(kExclusive));
  EXPECT_EQ(shown_devices(slices),
            "pci-0000-3b-00-0(rdma-init.io/link-down) pci-0000-81-00-0(rdma-init.io/no-device-node)");
  EXPECT_EQ(slices.warnings.at(0), "mlx5_1 has no active port: port 1 is DOWN: it has a taint");
  slices = slices_of(node, pool_of(kExclusive), 35);
  EXPECT_EQ(shown_devices(slices), "");
  EXPECT_EQ(slices.warnings.at(0), "mlx5_1 is left out, because it has no active port: port 1 is DOWN");
}

TEST(DraSlices, MarksHcaThatIsInUseWithoutAClaim) {
  HcaHolds holds;
  holds["mlx5_1"].foreign = {.exclusive_owner = "container web", .others = 1};
  holds["mlx5_1"].units = 1;
  EXPECT_EQ(shown_devices(slices_of(two_rails(), pool_of(kExclusive), 36, holds)),
            "pci-0000-3b-00-0(rdma-init.io/held) pci-0000-81-00-0");
  const struct {
    unsigned others;
    unsigned units;
    const char* shares;
    bool is_marked;
  } rows[] = {{0, 0, "4", false}, {0, 4, "4", false}, {3, 4, "1", false}, {4, 4, "4", true}, {9, 9, "4", true}};
  for (const auto& row : rows) {
    holds["mlx5_1"] = {.foreign = {.others = row.others}, .units = row.units};
    const Json device = device_at(slices_of(two_rails(), pool_of(kShared), 36, holds), 0);
    EXPECT_EQ(device["capacity"]["shares"]["value"], row.shares) << row.others;
    EXPECT_EQ(device.contains("taints"), row.is_marked) << row.others;
  }
}

TEST(DraSlices, KeepsRoomInTheGidTableForUnitsOfClaims) {
  // 8 slots have room for two children of two slots each beside the node's own four.
  fabric::Inventory node = test_support::rails(1, 16);
  const auto config = pool_of(R"("modes": ["shared"], "limits": {"shared": 64}, "network": "n")");
  const Json before = device_at(slices_of(node, config), 0);
  // A claim's child netdev takes its slots: the capacity stays.
  const auto more = test_support::usual_gids("fe80::2", "10.1.0.2");
  for (fabric::GidEntry gid : more) {
    gid.index += 4;
    node.hcas[0].ports[0].gids.push_back(gid);
  }
  HcaHolds holds;
  holds["mlx5_0"].units = 1;
  EXPECT_EQ(device_at(slices_of(node, config, 36, holds), 0)["capacity"], before["capacity"]);
}

TEST(DraSlices, LeavesOutHcasThatNoClaimMayHave) {
  fabric::Inventory node = two_rails();
  EXPECT_EQ(shown_devices(slices_of(node, pool_of(R"("modes": ["exclusive"], "selectors": {"ifNames": ["rail1"]})"))),
            "pci-0000-3b-00-0");
  node.hcas[0].ports[0].rate = std::string("25 Gb/sec (1X EDR)");
  const auto slices = slices_of(node, pool_of(R"("modes": ["exclusive"], "resource": "rdma-init.io/rails")"));
  EXPECT_EQ(shown_devices(slices), "pci-0000-3b-00-0");
  EXPECT_EQ(slices.warnings.at(0), "mlx5_0 is left out: its rate or link layer differs from most HCAs of pool rails");
  node.unread.push_back({fabric::Unread::Part::kPool, "/sys/x", EIO, "mlx5_1"});
  EXPECT_EQ(shown_devices(slices_of(node, pool_of(R"("modes": ["exclusive"], "selectors": {"vendors": ["15b3"]})"))),
            "");
}

TEST(DraSlices, ReportsWhyThereIsNoDevice) {
  const auto of_no_pool =
      slices_of(two_rails(), pool_of(R"("modes": ["exclusive"], "selectors": {"ifNames": ["eth9"]})"));
  EXPECT_EQ(
      of_no_pool.warnings,
      (std::vector<std::string>{"no HCA of this node is in a pool of config.json; remedy: `rdma-hook devices` shows "
                                "the pool of each HCA"}));
  EXPECT_EQ(of_no_pool.left_out, 0U);
  EXPECT_EQ(slices_of(two_rails(), pool_of(kShared), 35).left_out, 2U);
  EXPECT_TRUE(slices_of(two_rails(), pool_of(kShared)).warnings.empty());
  const auto empty = slices_of({}, pool_of(kShared));
  ASSERT_EQ(empty.warnings.size(), 1U);
  EXPECT_TRUE(empty.warnings[0].starts_with("this node has no HCA; remedy: ")) << empty.warnings[0];
  EXPECT_EQ(published_text(0, 2, "n1"), "0 devices in slices of node n1; 2 HCAs are left out: see the log");
  EXPECT_EQ(published_text(0, 1, "n1"), "0 devices in slices of node n1; 1 HCA is left out: see the log");
  EXPECT_EQ(published_text(7, 1, "n1"), "7 devices in slices of node n1");
}

TEST(DraSlices, SplitsDevicesIntoSlicesOfTheLargestSize) {
  for (const unsigned minor : {34U, 36U}) {
    const Slices slices = slices_of(test_support::rails(130), pool_of(kExclusive), minor);
    ASSERT_EQ(slices.slices.size(), minor == 34 ? 2U : 3U);
    EXPECT_EQ(slices.slices[0]["spec"]["devices"].size(), minor == 34 ? 128U : 64U);
    EXPECT_EQ(slices.slices.back()["metadata"]["name"],
              minor == 34 ? "00001-rdma-init.io-n1" : "00002-rdma-init.io-n1");
    EXPECT_EQ(slices.slices.back()["spec"]["devices"].size(), 2U);
  }
}

TEST(DraSlices, ShortensNameOfSlice) {
  SliceCluster cluster{.node = std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." +
                               std::string(61, 'd')};
  EXPECT_EQ(SliceRules(36).faults_of(resource_slices({}, cluster)), "");
}

// Returns the slices as JSON with one line a device.
std::string golden_text(const Slices& slices) {
  std::string text = "[";
  for (const Json& slice : slices.slices) {
    Json rest = slice;
    rest["spec"].erase("devices");
    text += fmt::format("{}{{\"slice\": {},\n \"devices\": [", text.size() > 1 ? ",\n" : "", rest.dump());
    for (const Json& device : slice["spec"]["devices"])
      text += (text.ends_with('[') ? "\n  " : ",\n  ") + device.dump();
    text += "]}";
  }
  return text + "]\n";
}

TEST(DraSlices, OfRecordedNodesAreAsExpected) {
  for (const auto& entry : fs::directory_iterator(FIXTURES)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".json") || name.ends_with(".expect.json")) continue;
    const auto node = fabric::read_snapshot(entry.path());
    ASSERT_TRUE(node) << name;
    const std::string text = golden_text(slices_of(*node, hook::Config()));
    const std::string golden = fmt::format("{}/{}", SLICES, name);
    if (std::getenv("RDMA_INIT_WRITE_SLICES")) test_support::write_file(golden, text);
    EXPECT_EQ(text, test_support::read_file(golden)) << name;
    ASSERT_TRUE(base::parse_json(text, name)) << name;
    slices_of(*node, pool_of(kExclusive), 34);
  }
}

}  // namespace
}  // namespace shim
