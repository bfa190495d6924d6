// RDMA_INIT_REQUIRE of a plan, and rdma-init where it is set: on each node of fixtures/, with each engine, mode and
// network, it is met by what the plan gives, or it is not set and a warning of the plan says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "fabric/snapshot.hpp"
#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "init/decision.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace fs = std::filesystem;
using hook::Json;

struct Setting {
  const char* engine = "";
  const char* mode = "";  // of the pool's network; "hca": none
  const char* child = "macvlan";
  bool host_network = false;
};

// What a device plugin makes of all of the node's HCAs.
Json devices_of(const fabric::Inventory& node) {
  Json devices = Json::array();
  for (const fabric::Hca& hca : node.hcas) {
    if (!hca.uverbs || !hca.is_accessible()) continue;
    devices.push_back({{"path", "/dev/infiniband/uverbs" + std::to_string(*hca.uverbs)},
                       {"type", "c"},
                       {"major", 231},
                       {"minor", 192 + *hca.uverbs}});
  }
  return devices;
}

Json config_of(const Setting& setting) {
  Json pool = {{"name", "all"}, {"selectors", Json::object()}, {"modes", {setting.mode}}};
  Json config = {{"pools", {pool}}};
  if (setting.mode != std::string_view("hca")) {
    config["pools"][0]["network"] = "rdma";
    config["networks"] = {{"rdma", {{"child", setting.child}, {"mode", setting.mode}}}};
  }
  return config;
}

fabric::Result<hook::Plan> plan_of(const fabric::Inventory& node, const Setting& setting) {
  Json container = {{"process", {{"args", {"rdma-init"}}}}, {"root", {{"path", "rootfs"}}}};
  container["linux"] = {{"devices", devices_of(node)}, {"namespaces", {{{"type", "mount"}}}}};
  if (!setting.host_network) container["linux"]["namespaces"].push_back({{"type", "network"}});
  const auto spec = TRY(hook::read_container_spec(container));
  const auto config = hook::parse_config({{"config.json", config_of(setting).dump()}});
  if (!config.problems.empty()) return fabric::make_error("{}", to_string(config.problems.front()));
  const auto asked = TRY(hook::parse_request(spec, config.config, *hook::parse_engine(setting.engine)));
  if (!asked.request) return hook::Plan();
  const hook::Candidates among(node, *asked.request, config.config);
  return hook::make_plan({.among = among,
                          .holdings = {},
                          .view_directory = "/views",
                          .host_network = setting.host_network,
                          .variables = true});
}

// The rail's address, as a GID of the HCA's first port.
void add_rail(const hook::PlannedNetdev& rail, fabric::Inventory& container) {
  fabric::Netdev netdev;
  netdev.name = rail.name;
  netdev.carrier = 1;
  netdev.in_this_netns = true;
  const auto address = *fabric::parse_address(fmt::format("10.99.{}.7", rail.rail));
  netdev.addresses.push_back({address, 24, ""});
  container.netdevs.push_back(netdev);
  fabric::Hca& hca = *find_hca(container, rail.hca);
  const auto port =
      std::find_if(hca.ports.begin(), hca.ports.end(), [](const fabric::Port& one) { return one.is_active(); });
  if (port == hca.ports.end() || !port->is_ethernet()) return;
  const unsigned index = port->gids.empty() ? 0 : port->gids.back().index + 1;
  port->gids.push_back({index, address, "RoCE v2", rail.name});
}

// What rdma-init finds in a container that was given the plan.
fabric::Inventory container_of(fabric::Inventory node, const hook::Plan& plan, const Setting& setting) {
  std::erase_if(node.hcas, [&](const fabric::Hca& hca) {
    return std::none_of(plan.hcas.begin(), plan.hcas.end(),
                        [&](const hook::PlannedHca& given) { return given.name == hca.name; });
  });
  node.env.reset();
  node.conf.reset();
  if (setting.host_network) return node;
  node.netdevs.clear();
  node.routes.reset();
  for (const hook::PlannedNetdev& rail : plan.netdevs)
    add_rail(rail, node);
  return node;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const char* engine : {"runc", "docker", "podman", "crio", "containerd"}) {
    for (const bool host_network : {false, true}) {
      all.push_back({engine, "hca", "macvlan", host_network});
      for (const char* child : {"macvlan", "ipoib"})
        all.push_back({engine, "shared", child, host_network});
      all.push_back({engine, "exclusive", "macvlan", host_network});
    }
  }
  return all;
}

bool has_use(const fabric::Inventory& node) {
  return std::any_of(node.hcas.begin(), node.hcas.end(), [](const fabric::Hca& hca) {
    return std::any_of(hca.ports.begin(), hca.ports.end(),
                       [](const fabric::Port& port) { return port.obstacle() == fabric::PortObstacle::kNone; });
  });
}

class Require : public testing::TestWithParam<std::string> {};

TEST_P(Require, isMetOrNotSetWithAReason) {
  const auto node = fabric::parse_snapshot(test_support::read_file(FIXTURES "/" + GetParam() + ".json"));
  ASSERT_TRUE(node) << node.error().message;
  const std::size_t usable_hcas = init::decide(*node, {}, {}).usable_hcas;
  std::size_t plans = 0;
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", setting.engine, setting.mode, setting.child,
                             setting.host_network ? "host network" : "own network"));
    const auto plan = plan_of(*node, setting);
    if (!plan || plan->hcas.empty()) continue;                                 // refused, or nothing to give
    if (setting.host_network && usable_hcas == 0 && has_use(*node)) continue;  // a pod's view of a node: not the node's
    ++plans;
    const auto required = plan->env.find("RDMA_INIT_REQUIRE");
    if (required == plan->env.end()) {
      EXPECT_TRUE(std::any_of(plan->warnings.begin(), plan->warnings.end(), [](const std::string& warning) {
        return warning.starts_with("RDMA_INIT_REQUIRE is not set: ");
      }));
      continue;
    }
    init::Policy policy;
    policy.require = *fabric::parse_number<unsigned>(required->second);
    EXPECT_GT(policy.require, 0U);
    const init::Decision decision = init::decide(container_of(*node, *plan, setting), {}, policy);
    EXPECT_FALSE(decision.refusal) << *decision.refusal;
  }
  const bool has_nodes = !devices_of(*node).empty();
  EXPECT_EQ(plans > 0, has_nodes) << plans;
}

std::vector<std::string> nodes() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(FIXTURES)) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() == ".json" && !name.ends_with(".expect")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& node) {
  std::string name = node.param;
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(fixtures, Require, testing::ValuesIn(nodes()), test_name);

}  // namespace
