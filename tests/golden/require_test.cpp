// RDMA_INIT_REQUIRE of a plan, on each node of fixtures/ with each change of the node, engine, mode and network: the
// HCAs of the plan satisfy it in rdma-init, or the plan does not set it and has a warning.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/foresee.hpp"
#include "hook/grant/node.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/foresee.hpp"
#include "hook/request/request.hpp"
#include "init/candidates.hpp"
#include "init/decision.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;
using base::Json;

struct Setting {
  const char* engine = "";
  const char* mode = "";  // mode of the pool's network; "hca": no network
  const char* child = "macvlan";
  const char* addresses = "all";  // rails with addresses in the network; "others": only rails of another node
  bool host_network = false;
};

using Change = std::function<void(fabric::Inventory&)>;

bool is_roce(const fabric::Hca& hca) {
  return std::any_of(hca.ports.begin(), hca.ports.end(),
                     [](const fabric::Port& port) { return port.is_active() && port.is_ethernet(); });
}

void each_netdev_of(const fabric::Hca& hca, fabric::Inventory& node, const std::function<void(fabric::Netdev&)>& use) {
  const auto is_named = [](const fabric::Port& port, const std::string& name) {
    return std::any_of(port.gids.begin(), port.gids.end(),
                       [&](const fabric::GidEntry& gid) { return gid.ndev == base::Attr<std::string>(name); });
  };
  for (fabric::Netdev& netdev : node.netdevs) {
    const bool of_gids = std::any_of(hca.ports.begin(), hca.ports.end(),
                                     [&](const fabric::Port& port) { return is_named(port, netdev.name); });
    if (of_gids || (hca.pci && netdev.pci == hca.pci)) use(netdev);
  }
}

void drop_addresses(fabric::Netdev& netdev) {
  netdev.addresses.clear();
}

// Changes the first RoCE HCA, or all of them.
Change roce_hcas(bool all, const std::function<void(fabric::Hca&, fabric::Inventory&)>& change) {
  return [=](fabric::Inventory& node) {
    for (fabric::Hca& hca : node.hcas) {
      if (!is_roce(hca)) continue;
      change(hca, node);
      if (!all) return;
    }
  };
}

Change netdevs(bool all, const std::function<void(fabric::Netdev&)>& change) {
  return roce_hcas(all, [=](fabric::Hca& hca, fabric::Inventory& node) { each_netdev_of(hca, node, change); });
}

Change without(fabric::Family family) {
  return [=](fabric::Inventory& node) {
    for (fabric::Netdev& netdev : node.netdevs)
      std::erase_if(netdev.addresses, [&](const auto& own) { return own.address.family() == family; });
    for (fabric::Hca& hca : node.hcas) {
      for (fabric::Port& port : hca.ports) {
        if (port.is_ethernet())
          std::erase_if(port.gids, [&](const auto& entry) { return entry.gid.family() == family; });
      }
    }
  };
}

void miss_device_nodes(fabric::Inventory& node) {
  for (fabric::Hca& hca : node.hcas) {
    hca.accessible = false;
    hca.access_error = ENOENT;
  }
}

void miss_first_uverbs(fabric::Inventory& node) {
  node.hcas.front().uverbs.reset();
  node.hcas.front().accessible = false;
}

void make_iwarp(fabric::Hca& hca, fabric::Inventory& /*node*/) {
  hca.node_type = "4: RNIC";
  for (fabric::Port& port : hca.ports)
    port.gids = {{0, *fabric::parse_address("a288:c203:10::"), "IB/RoCE v1", {}}};
}

// Like an adapter that is not switched to RoCE v2.
void make_v1(fabric::Hca& hca, fabric::Inventory& /*node*/) {
  for (fabric::Port& port : hca.ports)
    for (fabric::GidEntry& gid : port.gids)
      gid.type = "IB/RoCE v1";
}

// Adds an InfiniBand HCA of this rate: below or above the total rate of a rail.
Change add_infiniband(const char* rate) {
  return [=](fabric::Inventory& node) {
    fabric::Hca hca = node.hcas.front();
    hca.name = "ib0";
    hca.uverbs = 31;
    hca.uverbs_dev = "231:223";
    hca.pci = "00ff:01:00.0";
    hca.pci_path.reset();
    hca.driver = "mlx5_core";
    hca.vendor = "0x15b3";
    hca.node_type = "1: CA";
    fabric::Port port = hca.ports.front();
    port.state = "4: ACTIVE";
    port.link_layer = "InfiniBand";
    port.rate = rate;
    port.gids.clear();
    hca.ports = {port};
    node.hcas.push_back(hca);
  };
}

// The changes of a node, with their names.
const std::vector<std::pair<const char*, Change>>& changes() {
  static const std::vector<std::pair<const char*, Change>> all = {
      {"unchanged", [](fabric::Inventory&) {}},
      {"no addresses on one HCA", netdevs(false, drop_addresses)},
      {"no addresses on the HCAs", netdevs(true, drop_addresses)},
      {"one netdev down", netdevs(false, [](fabric::Netdev& netdev) { netdev.carrier = 0; })},
      {"no IPv6", without(fabric::Family::kIpv6)},
      {"no IPv4", without(fabric::Family::kIpv4)},
      {"no device nodes", miss_device_nodes},
      {"no uverbs of the first", miss_first_uverbs},
      {"iWARP", roce_hcas(true, make_iwarp)},
      {"RoCE v1", roce_hcas(true, make_v1)},
      {"one HCA of RoCE v1", roce_hcas(false, make_v1)},
      {"a slow InfiniBand HCA more", add_infiniband("10 Gb/sec (1X SDR)")},
      {"a fast InfiniBand HCA more", add_infiniband("6400 Gb/sec (8X XDR)")},
      {"exclusive RDMA", [](fabric::Inventory& node) { node.netns_mode = fabric::NetnsMode::kExclusive; }},
  };
  return all;
}

// Returns the device nodes that a device plugin adds for all HCAs of the node. A snapshot has no device numbers from
// uverbs32 on; these are the numbers of a file tree.
Json devices_of(const fabric::Inventory& node) {
  Json devices = Json::array();
  for (const fabric::Hca& hca : node.hcas) {
    if (!hca.uverbs) continue;
    const bool is_fixed = *hca.uverbs < fabric::kUverbsFixed;
    devices.push_back({{"path", "/dev/infiniband/uverbs" + std::to_string(*hca.uverbs)},
                       {"type", "c"},
                       {"major", is_fixed ? fabric::kUverbsMajor : 509},
                       {"minor", is_fixed ? fabric::kUverbsFirstMinor + *hca.uverbs : *hca.uverbs - 32}});
  }
  return devices;
}

// Returns a configuration with a network for the HCAs that can have its children, and device nodes for all other HCAs.
Json config_of(const Setting& setting) {
  Json all = {{"name", "all"}, {"modes", {"hca"}}};
  if (setting.mode == std::string_view("hca")) return {{"pools", {all}}};
  Json pool = {{"name", "rdma"}, {"modes", {setting.mode}}, {"network", "rdma"}};
  if (setting.mode != std::string_view("exclusive"))
    pool["selectors"]["linkTypes"] = {setting.child == std::string_view("ipoib") ? "infiniband" : "ether"};
  Json network = {{"child", setting.child}, {"mode", setting.mode}};
  const std::string_view addresses = setting.addresses;
  if (addresses != "none") network["addresses"] = {{{"subnet", "10.99.0.0/16"}}};
  if (addresses == "others") network["addresses"][0]["rail"] = 99;
  return {{"pools", {pool, all}}, {"networks", {{"rdma", network}}}};
}

base::Result<hook::ContainerRequest> asking_of(const fabric::Inventory& node, const Setting& setting) {
  Json container = {{"process", {{"args", {"rdma-init"}}}}, {"root", {{"path", "rootfs"}}}};
  container["linux"] = {{"devices", devices_of(node)}, {"namespaces", {{{"type", "mount"}}}}};
  if (!setting.host_network) container["linux"]["namespaces"].push_back({{"type", "network"}});
  hook::ContainerRequest requesting;
  requesting.spec = TRY(hook::read_container_spec(container));
  auto config = hook::parse_config({{"config.json", config_of(setting).dump()}});
  if (!config.problems.empty()) return base::make_error("{}", to_string(config.problems.front()));
  requesting.admin = std::move(config.config);
  requesting.request =
      TRY(hook::parse_request(requesting.spec, requesting.admin, *hook::parse_engine(setting.engine))).request;
  return requesting;
}

struct Outcome {
  hook::Plan plan;
  std::vector<hook::ForeseenRail> rails;
};

// Decides like `rdma-hook plan`.
base::Result<Outcome> plan_of(const fabric::Inventory& node, const hook::ContainerRequest& requesting) {
  if (!requesting.request) return Outcome();
  hook::NodeSettings settings;
  settings.snapshot = "as read";
  const hook::Owner owner;
  hook::Plan plan = TRY(hook::foresee({requesting, owner, settings, nullptr, true}, node)).plan;
  auto foreseen = TRY(hook::foresee_rails(
      {.plan = plan, .config = requesting.admin, .inventory = node, .is_snapshot = true, .key = "plan"}));
  // Any address of a range stands for the one that the container gets.
  for (hook::ForeseenRail& one : foreseen.rails)
    for (const hook::AddressRange& range : one.ranges)
      one.rail.addresses.push_back({range.from, range.prefix, range.gateway});
  return Outcome{std::move(plan), std::move(foreseen.rails)};
}

base::Result<Outcome> plan_of(const fabric::Inventory& node, const Setting& setting) {
  return plan_of(node, TRY(asking_of(node, setting)));
}

// Adds the netdev of a rail. Its planned addresses become GIDs of the HCA's first active port.
void add_rail(const hook::Rail& rail, fabric::Inventory& container) {
  fabric::Netdev netdev;
  netdev.name = rail.name;
  netdev.carrier = 1;
  netdev.in_this_netns = true;
  for (const hook::RailAddress& own : rail.addresses)
    netdev.addresses.push_back({own.address, own.prefix, ""});
  container.netdevs.push_back(netdev);
  fabric::Hca& hca = *find_hca(container, rail.hca);
  const auto port =
      std::find_if(hca.ports.begin(), hca.ports.end(), [](const fabric::Port& one) { return one.is_active(); });
  if (port == hca.ports.end() || !port->is_ethernet() || hca.is_iwarp()) return;
  // The kernel makes GIDs of the types of the adapter.
  std::optional<base::Attr<std::string>> type = "RoCE v2";
  const auto is_v2 = [](const fabric::GidEntry& gid) { return gid.type == base::Attr<std::string>("RoCE v2"); };
  if (!port->gids.empty() && std::none_of(port->gids.begin(), port->gids.end(), is_v2)) type = port->gids.front().type;
  for (const hook::RailAddress& own : rail.addresses) {
    const unsigned index = port->gids.empty() ? 0 : port->gids.back().index + 1;
    port->gids.push_back({index, own.address, type, rail.name});
  }
}

// Returns the inventory of rdma-init in a container of the plan.
fabric::Inventory container_of(fabric::Inventory node, const Outcome& outcome, const Setting& setting) {
  const auto has = [](const auto& list, const auto& is_it) { return std::any_of(list.begin(), list.end(), is_it); };
  std::erase_if(node.hcas, [&](const fabric::Hca& hca) {
    const bool is_granted = has(outcome.plan.hcas, [&](const hook::PlannedHca& one) { return one.name == hca.name; });
    const bool is_inside = has(outcome.rails, [&](const hook::ForeseenRail& one) {
      return one.rail.hca == hca.name && one.rail.kind == hook::RailKind::kMove;
    });
    const bool is_hidden = node.netns_mode == fabric::NetnsMode::kExclusive && !setting.host_network && !is_inside;
    return !is_granted || is_hidden;
  });
  for (fabric::Hca& hca : node.hcas) {
    hca.accessible = hca.uverbs && has(outcome.plan.nodes, [&](const hook::PlannedNode& one) {
                       return one.path == fmt::format("/dev/infiniband/uverbs{}", *hca.uverbs);
                     });
    hca.access_error.reset();
  }
  node.env.reset();
  node.conf.reset();
  if (setting.host_network) return node;
  node.netdevs.clear();
  node.routes.reset();
  for (const hook::ForeseenRail& one : outcome.rails)
    add_rail(one.rail, node);
  return node;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const char* engine : {"runc", "docker", "podman", "crio", "containerd"}) {
    for (const bool host_network : {false, true}) {
      all.push_back({engine, "hca", "macvlan", "all", host_network});
      for (const char* mode : {"shared", "shared-multi"}) {
        for (const char* child : {"macvlan", "ipvlan", "ipoib"})
          all.push_back({engine, mode, child, "all", host_network});
      }
      all.push_back({engine, "shared", "macvlan", "none", host_network});
      for (const char* addresses : {"all", "none", "others"})
        all.push_back({engine, "exclusive", "macvlan", addresses, host_network});
    }
  }
  return all;
}

fabric::Inventory read_fixture(const std::string& name) {
  auto node = fabric::parse_snapshot(test_support::read_file(FIXTURES "/" + name + ".json"));
  if (!node) {
    ADD_FAILURE() << node.error().message;
    return {};
  }
  return *std::move(node);
}

// With RDMA_INIT_NODE_ADDRESSES, rdma-init uses only GIDs of these addresses.
void expect_reported_gids(const fabric::Inventory& container, const hook::Plan& plan) {
  const auto reported = plan.env.find("RDMA_INIT_NODE_ADDRESSES");
  if (reported == plan.env.end()) return;
  const auto addresses = init::parse_node_addresses(reported->second);
  ASSERT_TRUE(addresses) << addresses.error().message;
  init::Policy policy;
  policy.gids.node_addresses = *addresses;
  for (const init::PortReport& port : init::decide(container, {}, policy).ports) {
    if (!port.used || !port.gid) continue;
    const auto own = addresses->find({port.device, port.port});
    ASSERT_NE(own, addresses->end()) << port.device;
    EXPECT_NE(std::find(own->second.begin(), own->second.end(), *port.gid), own->second.end()) << port.device;
  }
}

// Returns the number of HCAs with a usable port of the link layer that rdma-init uses, or nullopt if it uses no port.
std::optional<std::size_t> hcas_of_layer(const fabric::Inventory& container, const init::Decision& decision) {
  const auto used = std::find_if(decision.ports.begin(), decision.ports.end(),
                                 [](const init::PortReport& port) { return port.used; });
  if (used == decision.ports.end()) return std::nullopt;
  std::set<const fabric::Hca*> hcas;
  init::GidFilter own;
  own.node_gids = false;
  for (const init::Candidate& candidate : init::find_candidates(container, own)) {
    if (candidate.usable() && candidate.port->link_layer == base::Attr<std::string>(used->link_layer))
      hcas.insert(candidate.hca);
  }
  return hcas.size();
}

std::string text_of(const char* change, const Setting& setting) {
  return fmt::format("{}: {} {} {}, addresses for {}{}", change, setting.engine, setting.mode, setting.child,
                     setting.addresses, setting.host_network ? ", host network" : "");
}

bool has_warning(const hook::Plan& plan, const char* beginning) {
  return std::any_of(plan.warnings.begin(), plan.warnings.end(),
                     [&](const std::string& warning) { return warning.starts_with(beginning); });
}

class Require : public testing::TestWithParam<std::string> {
 protected:
  // Calls `test` for each change of the fixture with each of the settings.
  static void each_node(const std::vector<Setting>& settings,
                        const std::function<void(const fabric::Inventory&, const Setting&)>& test) {
    const fabric::Inventory fixture = read_fixture(GetParam());
    for (const auto& [name, change] : changes()) {
      fabric::Inventory node = fixture;
      change(node);
      for (const Setting& setting : settings) {
        SCOPED_TRACE(text_of(name, setting));
        test(node, setting);
      }
    }
  }
};

// Also tests that a plan sets it whenever possible.
TEST_P(Require, IsSatisfiedOrUnsetWithWarning) {
  each_node(settings(), [](const fabric::Inventory& node, const Setting& setting) {
    const auto outcome = plan_of(node, setting);
    if (!outcome) {
      EXPECT_NE(outcome.error().message, "");
      return;
    }
    const hook::Plan& plan = outcome->plan;
    EXPECT_EQ(plan.hcas.empty(), devices_of(node).empty());
    for (const auto& [name, value] : plan.env)
      EXPECT_TRUE(hook::is_read_variable(name + "=")) << name << ": the container's own value is not known";
    const auto required = plan.env.find("RDMA_INIT_REQUIRE");
    const bool is_set = required != plan.env.end();
    EXPECT_EQ(has_warning(plan, "RDMA_INIT_REQUIRE is not set: "), !is_set && !plan.hcas.empty());
    init::Policy policy;
    if (is_set) policy.require = *base::parse_number<unsigned>(required->second);
    EXPECT_EQ(is_set, policy.require > 0);
    const fabric::Inventory container = container_of(node, *outcome, setting);
    EXPECT_FALSE(init::decide(container, {}, policy).refusal);
    // Another network can add netdevs, so that the use of the node's addresses is not certain.
    policy.gids.node_gids = false;
    const init::Decision decision = init::decide(container, {}, policy);
    EXPECT_FALSE(decision.refusal) << *decision.refusal;
    EXPECT_EQ(is_set, decision.usable_hcas > 0);
    expect_reported_gids(container, plan);
    EXPECT_EQ(policy.require, hcas_of_layer(container, decision).value_or(policy.require));
  });
}

// Returns the container with additions that its author can know: netdevs of another network for the RoCE HCAs without a
// netdev of the plan, and link-local addresses for rails without an address.
fabric::Inventory largest_container(const fabric::Inventory& node, Outcome outcome, const Setting& setting) {
  unsigned number = 0;
  for (hook::ForeseenRail& one : outcome.rails) {
    if (!one.rail.addresses.empty()) continue;
    one.rail.addresses = {{*fabric::parse_address(fmt::format("fe80::{}", ++number)), 64, std::nullopt}};
  }
  fabric::Inventory container = container_of(node, outcome, setting);
  if (setting.host_network) return container;
  for (fabric::Hca& hca : container.hcas) {
    const auto is_its = [&](const hook::PlannedNetdev& netdev) { return netdev.hca == hca.name; };
    if (!is_roce(hca) || std::any_of(outcome.plan.netdevs.begin(), outcome.plan.netdevs.end(), is_its)) continue;
    hook::Rail rail;
    rail.name = fmt::format("other{}", ++number);
    rail.hca = hca.name;
    rail.addresses = {{*fabric::parse_address(fmt::format("10.98.0.{}", number)), 16, std::nullopt}};
    add_rail(rail, container);
  }
  return container;
}

TEST_P(Require, OfContainerIsSatisfiedOrHasWarning) {
  std::vector<Setting> of_crio = settings();
  std::erase_if(of_crio, [](const Setting& setting) { return setting.engine != std::string_view("crio"); });
  each_node(of_crio, [](const fabric::Inventory& node, const Setting& setting) {
    auto requesting = asking_of(node, setting);
    ASSERT_TRUE(requesting) << requesting.error().message;
    for (const char* own : {"1", "4", "100", "many", ""}) {
      SCOPED_TRACE(std::string("RDMA_INIT_REQUIRE=") + own);
      requesting->spec.env = {"PATH=/bin", std::string("RDMA_INIT_REQUIRE=") + own};
      const auto outcome = plan_of(node, *requesting);
      if (!outcome || outcome->plan.hcas.empty()) continue;
      const hook::Plan& plan = outcome->plan;
      EXPECT_EQ(plan.env.at("RDMA_INIT_REQUIRE"), own);
      const auto number = base::parse_number<unsigned>(own);
      EXPECT_EQ(plan.no_require.empty(), number.has_value());
      init::Policy policy;
      policy.require = number.value_or(0);
      policy.gids.node_gids = false;
      const fabric::Inventory container = largest_container(node, *outcome, setting);
      const bool is_started = (number || !*own) && !init::decide(container, {}, policy).refusal;
      EXPECT_EQ(has_warning(plan, "the container's RDMA_INIT_REQUIRE "), !is_started);
    }
  });
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

// Tests that the partial read of rdma-nri and rdma-runtime suffices.
TEST_P(Require, IsSameFromFileTree) {
  const Setting host{.engine = "containerd", .mode = "hca", .host_network = true};
  const Setting rails{.engine = "containerd", .mode = "shared"};
  each_node({host, rails}, [](const fabric::Inventory& node, const Setting& setting) {
    const auto requesting = asking_of(node, setting);
    ASSERT_TRUE(requesting) << requesting.error().message;
    if (!requesting->request) return;
    const test_support::TempDir directory;
    test_support::lay_out(node, directory.path());
    hook::NodeSettings settings;
    settings.root = directory.path();
    auto read = hook::read_node_for(*requesting, settings, true);
    ASSERT_TRUE(read) << read.error().message;
    read->netns_mode = node.netns_mode;  // a tree does not have it
    const auto live = plan_of(*read, *requesting);
    const auto foretold = plan_of(node, *requesting);
    if (!setting.host_network && !(live && foretold)) return;  // the hook refuses the rails
    ASSERT_TRUE(live) << live.error().message;
    ASSERT_TRUE(foretold) << foretold.error().message;
    EXPECT_EQ(live->plan.env, foretold->plan.env);
    EXPECT_EQ(live->plan.warnings, foretold->plan.warnings);
  });
}

// Otherwise the tests above would not test the variable.
TEST(RequireOfAll, IsSetWithEachEngineAndMode) {
  std::set<std::pair<std::string, std::string>> all;
  std::set<std::pair<std::string, std::string>> reached;
  for (const Setting& setting : settings()) {
    const auto what = std::pair<std::string, std::string>(
        setting.engine, setting.host_network ? "host network" : fmt::format("{} {}", setting.mode, setting.child));
    all.insert(what);
    for (const std::string& name : nodes()) {
      if (reached.contains(what)) break;
      const auto outcome = plan_of(read_fixture(name), setting);
      if (outcome && outcome->plan.env.contains("RDMA_INIT_REQUIRE")) reached.insert(what);
    }
  }
  EXPECT_EQ(reached, all);
}

std::string test_name(const testing::TestParamInfo<std::string>& node) {
  std::string name = node.param;
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(fixtures, Require, testing::ValuesIn(nodes()), test_name);

}  // namespace
