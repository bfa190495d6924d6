// `rdma-hook config generate` for the nodes of fixtures/: check-config accepts the configuration, and a container that
// requests all HCAs gets exactly the ACTIVE ports that rdma-init should use there. The fixtures of containers are left
// out, because their HCAs and netdevs are those of a container.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "hook/admin/cluster/generate_config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/empty_container.hpp"
#include "hook/request/request.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using Names = std::vector<std::string>;

// Nodes, by "context" of their snapshots. 14 is a container in the node's network, which sees what the node has.
constexpr const char* kNodes[] = {"05-doks-b300-host-ipv6",    "10-azure-ndv5-host",        "14-h100-ib-half-down",
                                  "15-dgx-b200-nvswitch-lpf",  "16-aws-p5en-efa",           "20-hgx-rails-plus-bond0",
                                  "24-juniper-h100-dualstack", "26-gb10-gid-drift",         "27-rxe-veth",
                                  "28-rxe-2.5g-plus-mlx5",     "31-two-addresses-dual-port"};
constexpr const char* kContainers[] = {
    "02-spiderpool-macvlan",   "03-sparse-gid-pod",  "09-netns-name-collision",         "19-roce-lag-container",
    "30-calico-only-roce-pod", "33-no-device-nodes", "36-macvlan-upstream-foreign-ipv4"};

Json fixture(const std::string& name) {
  return Json::parse(test_support::read_file(std::string(FIXTURES) + "/" + name + ".json"));
}

NamedNode node_of(const std::string& name, const Json& snapshot) {
  auto inventory = fabric::parse_snapshot(snapshot.dump());
  EXPECT_TRUE(inventory) << name;
  return {name, inventory ? *inventory : fabric::Inventory()};
}

Config config_of(const GeneratedConfig& generated) {
  const ParsedConfig parsed = parse_config({{"config.json", generated.text}});
  for (const ConfigProblem& problem : parsed.problems)
    ADD_FAILURE() << to_string(problem) << "\n" << generated.text;
  return parsed.config;
}

// Returns the ACTIVE ports, as NCCL names them, of the HCAs that `rdma-init.io/devices=all` gets.
Names ports_of_all(const fabric::Inventory& inventory, const Config& config) {
  const auto document = parse_json(empty_container({{"rdma-init.io/devices", "all"}}, {}, Engine::kRunc), "spec");
  const auto spec = read_container_spec(*document);
  const auto asked = parse_request(*spec, config, Engine::kRunc);
  const Candidates among(inventory, *asked->request, config);
  const Holdings none;
  const auto plan = make_plan({.among = among, .holdings = none, .view_directory = "/run/views", .variables = true});
  Names ports;
  if (!plan) return ports;
  for (const PlannedHca& planned : plan->hcas)
    for (const fabric::Port& port : fabric::find_hca(inventory, planned.name)->ports)
      if (port.is_active()) ports.push_back(fmt::format("{}:{}", planned.name, port.number));
  std::ranges::sort(ports);
  return ports;
}

Names expected_ports(const std::string& name) {
  const Json ideal = fixture(name + ".expect")["ideal"]["NCCL_IB_HCA"];
  Names ports;
  if (!ideal.is_string()) return ports;
  for (const std::string_view part : base::split(std::string_view(ideal.get_ref<const std::string&>()).substr(1), ','))
    ports.emplace_back(part);
  std::ranges::sort(ports);
  return ports;
}

TEST(GenerateConfig, FixturesAreNodesOrContainers) {
  std::set<std::string> known(std::begin(kNodes), std::end(kNodes));
  for (const char* name : kContainers)
    known.insert(name);
  for (const auto& entry : std::filesystem::directory_iterator(FIXTURES)) {
    std::string name = entry.path().filename();
    if (!name.ends_with(".json") || name.ends_with(".expect.json")) continue;
    name.resize(name.size() - 5);
    EXPECT_TRUE(known.contains(name)) << name << ": add it to kNodes or kContainers";
    const Json context = fixture(name)["about"]["context"];
    const bool is_node = std::ranges::find(kNodes, name) != std::end(kNodes);
    EXPECT_EQ(is_node, context != "container") << name;
  }
}

class GenerateForNode : public testing::TestWithParam<const char*> {};

TEST_P(GenerateForNode, GrantsTheExpectedPorts) {
  const std::string name = GetParam();
  const NamedNode node = node_of(name, fixture(name));
  for (const StartedBy starter :
       {StartedBy::kAny, StartedBy::kKubernetes, StartedBy::kDocker, StartedBy::kPodman, StartedBy::kSlurm}) {
    const auto generated = generate_config({node}, {.started_by = starter});
    ASSERT_TRUE(generated) << generated.error().message;
    const Config config = config_of(*generated);
    EXPECT_EQ(ports_of_all(node.inventory, config), expected_ports(name)) << generated->text;
    EXPECT_EQ(config.pools.at(0).resource.has_value(),
              starter == StartedBy::kKubernetes && !expected_ports(name).empty());
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(nodes, GenerateForNode, testing::ValuesIn(kNodes), name_of);

// Returns `number` nodes of the kind of the fixture, with other node GUIDs and other addresses of the same subnets.
std::vector<NamedNode> fleet(const std::string& name, unsigned number) {
  std::vector<NamedNode> nodes;
  for (unsigned i = 0; i < number; ++i) {
    Json snapshot = fixture(name);
    for (Json& device : snapshot["devices"])
      device["node_guid"] = fmt::format("{:04x}:{}", i, device["node_guid"].get<std::string>().substr(5));
    nodes.push_back(node_of(fmt::format("{}-{}", name.substr(0, 2), i), snapshot));
  }
  return nodes;
}

TEST(GenerateConfig, TwentyNodesOfTwoKindsGetOneConfiguration) {
  auto nodes = fleet("20-hgx-rails-plus-bond0", 12);
  for (NamedNode& node : fleet("24-juniper-h100-dualstack", 8))
    nodes.push_back(std::move(node));
  const auto generated = generate_config(nodes, {.started_by = StartedBy::kKubernetes});
  ASSERT_TRUE(generated) << generated.error().message;
  const Config config = config_of(*generated);
  for (const NamedNode& node : nodes)
    EXPECT_EQ(ports_of_all(node.inventory, config),
              expected_ports(node.name.starts_with("20") ? "20-hgx-rails-plus-bond0" : "24-juniper-h100-dualstack"));
  EXPECT_EQ(generated->warnings, Names());
  // Both kinds have eight HCAs, at the same PCI addresses.
  EXPECT_EQ(config.pools.at(0).expect, 8U);
  EXPECT_NE(generated->text.find("20-0, 20-1, 20-2, 20-3 and 8 more"), std::string::npos) << generated->text;
  EXPECT_NE(generated->text.find("24-0, 24-1, 24-2, 24-3 and 4 more"), std::string::npos) << generated->text;
}

TEST(GenerateConfig, NamesNodeWithFewerHcas) {
  auto nodes = fleet("20-hgx-rails-plus-bond0", 3);
  std::erase_if(nodes[1].inventory.hcas, [](const fabric::Hca& hca) { return hca.name == "mlx5_3"; });
  const auto generated = generate_config(nodes, {});
  ASSERT_TRUE(generated) << generated.error().message;
  EXPECT_EQ(generated->warnings, Names{"node 20-1: it has 7 usable HCAs, other nodes have 8"});
}

TEST(GenerateConfig, RefusesNodesThatNoSelectorsFit) {
  std::vector<NamedNode> nodes = fleet("15-dgx-b200-nvswitch-lpf", 1);
  // On this node the management functions have the PCI addresses of the rails.
  Json other = fixture("15-dgx-b200-nvswitch-lpf");
  for (Json& device : other["devices"]) {
    const auto name = device["name"].get<std::string>();
    if (name == "mlx5_4") device["pci"] = "0000:0c:00.0";
    if (name == "mlx5_0" || name == "mlx5_1" || name == "mlx5_2" || name == "mlx5_3")
      device["pci"] = "0000:3c:00." + name.substr(5);
  }
  nodes.push_back(node_of("turned", other));
  const auto generated = generate_config(nodes, {});
  ASSERT_FALSE(generated);
  EXPECT_TRUE(generated.error().message.starts_with("no selectors fit all nodes: node ")) << generated.error().message;
}

TEST(GenerateConfig, NetworkHasOnlySubnetsOfTheNode) {
  const auto nodes = fleet("24-juniper-h100-dualstack", 1);
  const auto generated = generate_config(nodes, {.rails = true});
  ASSERT_TRUE(generated) << generated.error().message;
  const Json whole = Json::parse(generated->text);
  const Json& addresses = whole["networks"]["rails"]["addresses"];
  ASSERT_EQ(addresses.size(), 8U);
  EXPECT_EQ(addresses[0]["subnet"], "10.200.0.0/24");
  EXPECT_EQ(addresses[7]["subnet"], "10.200.7.0/24");
  const ParsedConfig parsed = parse_config({{"config.json", generated->text}});
  EXPECT_FALSE(parsed.ok()) << "the values to fill are errors";
  for (const ConfigProblem& problem : parsed.problems)
    EXPECT_NE(problem.message.find("FILL"), std::string::npos) << to_string(problem);
  const auto none = generate_config(fleet("20-hgx-rails-plus-bond0", 1), {.rails = true});
  ASSERT_FALSE(none) << "a subnet of two addresses has no room";
}

TEST(GenerateConfig, OneNodeWithoutHcasIsAnError) {
  EXPECT_FALSE(generate_config({{"empty", {}}}, {}));
}

}  // namespace
}  // namespace hook
