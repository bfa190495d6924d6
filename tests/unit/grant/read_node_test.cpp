// What is read of a node depends on what decides.
#include <gtest/gtest.h>

#include <filesystem>

#include "fabric/text.hpp"
#include "hook/grant/node.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace hook {
namespace {

using test_support::TempDir;

struct Node {
  TempDir directory;
  NodeSettings settings;

  Node() {
    auto inventory = test_support::rails(3, 4);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    test_support::lay_out(inventory, directory / "node");
    settings.root = directory / "node";
  }

  fabric::Inventory read(const Request& request, const Config& config) const {
    const auto inventory = read_node_for({.admin = config, .request = request}, settings, false);
    return inventory ? *inventory : fabric::Inventory{};
  }
};

Request naming(const std::string& list) {
  Request request;
  request.wish = *parse_wish(list, "a test");
  return request;
}

TEST(ReadNodeFor, WhoNamesHcasCostsTheseAlone) {
  const Node node;
  const auto inventory = node.read(naming("mlx5_1"), {});
  ASSERT_EQ(inventory.hcas.size(), 1U);
  const fabric::Hca& hca = inventory.hcas.front();
  EXPECT_EQ(hca.name, "mlx5_1");
  EXPECT_EQ(hca.uverbs_dev, "231:193");
  EXPECT_TRUE(hca.pci && hca.class_link && hca.verbs_link);
  EXPECT_TRUE(hca.ports.at(0).is_active());
  EXPECT_FALSE(hca.vendor) << "nothing selects by it";
  EXPECT_TRUE(inventory.netdevs.empty());
}

// What RDMA_INIT_REQUIRE counts: in the node's network a RoCE port needs a GID of an address there, an InfiniBand port
// none.
TEST(ReadNodeFor, OneOwnGidOfRoceAlone) {
  auto inventory = test_support::rails(3);
  inventory.hcas[1].ports.at(0).link_layer = "InfiniBand";
  inventory.netdevs.at(3).addresses.clear();
  const TempDir directory;
  test_support::lay_out(inventory, directory / "node");
  NodeSettings settings;
  settings.root = directory / "node";
  Asking asking{.request = naming("mlx5_0,mlx5_1,mlx5_2")};
  auto live = read_node_for(asking, settings, true);
  ASSERT_TRUE(live) << live.error().message;
  const auto port = [&](std::size_t hca) { return live->hcas.at(hca).ports.at(0); };
  EXPECT_EQ(port(0).netdev, "rail0");
  EXPECT_EQ(port(0).gids.size(), 2U) << "the first of RoCE v2 will do";
  EXPECT_FALSE(port(1).netdev);
  EXPECT_TRUE(port(1).gids.empty());
  EXPECT_TRUE(port(2).gids.empty()) << "rail2 has no address that one could be of";
  EXPECT_EQ(live->netdevs.size(), 4U);
  const auto plan = make_plan({.among = Candidates(*live, *asking.request, {}),
                               .holdings = {},
                               .view_directory = "/views",
                               .host_network = true,
                               .variables = true});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->env.at("RDMA_INIT_REQUIRE"), "1") << "of one link layer";

  asking.spec.has_netns = true;
  live = read_node_for(asking, settings, true);
  ASSERT_TRUE(live) << live.error().message;
  EXPECT_EQ(port(0).netdev, "rail0");
  EXPECT_EQ(live->netdevs.at(0).addresses.size(), 2U) << "which rdma-init is told";
  EXPECT_TRUE(port(0).gids.empty());
}

// Of netdevs that move, where the network has none.
TEST(ReadNodeFor, AddressesThatRailsBringAlong) {
  const TempDir directory;
  test_support::lay_out(test_support::rails(2), directory / "node");
  NodeSettings settings;
  settings.root = directory / "node";
  Asking asking{.request = naming("mlx5_0,mlx5_1")};
  asking.spec.has_netns = true;
  asking.request->network = "fabric";
  Network& network = asking.admin.networks["fabric"];
  network.mode = Mode::kExclusive;
  const auto addresses = [&](bool variables) {
    const auto live = read_node_for(asking, settings, variables);
    std::size_t count = 0;
    for (const fabric::Netdev& netdev : live->netdevs)
      count += netdev.addresses.size();
    EXPECT_EQ(live->netdevs.size(), 2U) << "no other netdevs";
    // The first is of RoCE v1, the second says what the adapter can.
    EXPECT_EQ(live->hcas.at(0).ports.at(0).gids.size(), variables ? 2U : 0U);
    return count;
  };
  EXPECT_EQ(addresses(true), 4U);
  EXPECT_EQ(addresses(false), 0U);
  network.ranges.resize(1);
  EXPECT_EQ(addresses(true), 0U);
  network.ranges[0].rail = 0;
  EXPECT_EQ(addresses(true), 4U) << "there may be other rails";
}

// NVIDIA's device plugin and runtime name GPUs in a variable and write no device nodes.
TEST(ReadNodeFor, GpusByTheUuidsOfTheDriver) {
  const std::string uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  auto inventory = test_support::rails(2);
  for (std::size_t i = 0; i < 2; ++i)
    inventory.hcas[i].pci_path = {{fmt::format("0000:0{}:00.0", i)}};
  inventory.gpus = {{.pci = "0000:81:00.0", .numa_node = 0, .pci_path = {{"0000:00:00.0"}}, .uuid = std::nullopt},
                    {.pci = "0000:82:00.0", .numa_node = 0, .pci_path = {{"0000:01:00.0"}}, .uuid = uuid}};
  const TempDir directory;
  test_support::lay_out(inventory, directory / "node");
  Request request = naming("gpu");
  request.gpu_uuids = {uuid};
  NodeSettings settings;
  settings.root = directory / "node";
  const auto live = read_node_for({.request = request}, settings, false);
  ASSERT_TRUE(live && live->gpus) << live.error().message;
  ASSERT_EQ(live->gpus->size(), 2U);
  EXPECT_EQ(live->gpus->at(0).uuid, std::nullopt);
  EXPECT_EQ(live->gpus->at(1).uuid, uuid);
  const auto plan = make_plan({Candidates(*live, request, {}), {}, "/views"});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->hcas.size(), 1U);
  EXPECT_EQ(plan->hcas.front().name, "mlx5_1");
  EXPECT_EQ(test_support::read_tree(directory / "node", true).gpus->at(1).uuid, uuid) << "for snapshots";
}

TEST(ReadNodeFor, PoolsThatSelectSeeWhatTheySelectBy) {
  const Node node;
  Config config;
  config.pools.push_back({"rails", {}, {Mode::kHca}, {}, std::nullopt});
  EXPECT_TRUE(node.read(naming("mlx5_1"), config).netdevs.empty());
  config.pools.front().selectors.if_names = {"rail*"};
  const auto inventory = node.read(naming("mlx5_1"), config);
  ASSERT_EQ(inventory.hcas.size(), 1U);
  EXPECT_EQ(inventory.hcas.front().ports.at(0).netdev, "rail1");
  EXPECT_FALSE(inventory.hcas.front().vendor) << "nothing selects by it";
  config.pools.front().selectors.vendors = {"15b3"};
  EXPECT_TRUE(node.read(naming("mlx5_1"), config).hcas.at(0).vendor);
}

TEST(ReadNodeFor, AChoiceSeesAll) {
  const Node node;
  for (const char* list : {"all", "2", "rail:1", "mlx5_*"}) {
    const auto inventory = node.read(naming(list), {});
    EXPECT_EQ(inventory.hcas.size(), 3U) << list;
    EXPECT_TRUE(inventory.netdevs.empty()) << list << ": nothing depends on them";
  }
  EXPECT_EQ(node.read(naming("netdev:rail1"), {}).netdevs.size(), 3U);
  Config config;
  config.networks["rails"].name = "rails";
  Request with_rails = naming("all");
  with_rails.network = "rails";
  EXPECT_EQ(node.read(with_rails, config).netdevs.size(), 3U);
  EXPECT_EQ(node.read(naming("mlx5_7"), {}).hcas.size(), 3U) << "the refusal says what there is";
}

TEST(ReadNodeFor, GivenNodesKeepTheOrderOfTheirNetdevs) {
  const Node node;
  Request request = naming("all");
  request.given_is_the_grant = true;
  request.given = {{"/dev/infiniband/uverbs0", 'c', 231, 192}, {"/dev/infiniband/uverbs2", 'c', 231, 194}};
  request.order = {"rail2", "rail0"};
  const auto inventory = node.read(request, {});
  const Config config;
  const Candidates among(inventory, request, config);
  ASSERT_EQ(among.given.size(), 2U);
  EXPECT_EQ(among.given.front()->name(), "mlx5_2");
}

TEST(ReadNodeFor, GivenNodesAreFoundByNumber) {
  const Node node;
  Request request = naming("mlx5_0");
  request.given = {{"/dev/x", 'c', 231, 194}};
  const auto inventory = node.read(request, {});
  ASSERT_EQ(inventory.hcas.size(), 2U) << "what it names and what it has";
  EXPECT_EQ(inventory.hcas.back().name, "mlx5_2");
}

TEST(ReadNodeFor, TheNodeSaysWhoseADynamicNumberIs) {
  const Node node;
  const std::string links = node.settings.root + "/sys/dev/char";
  std::filesystem::create_directories(links);
  std::filesystem::create_symlink("../../devices/x/infiniband_verbs/uverbs40", links + "/511:8");
  std::filesystem::create_symlink("../../devices/virtual/nvidia-uvm/uverbs41", links + "/511:9");
  const auto given = [&](std::int64_t major, std::int64_t minor) {
    ContainerSpec spec;
    spec.devices = {{"/dev/x", 'c', major, minor}};
    const auto asking = understand_spec(spec, Config(), {Engine::kRunc}, node.settings.root);
    if (!asking) return asking.error().message;
    return asking->request ? fmt::format("uverbs{}", asking->request->given.at(0).uverbs().value()) : "nothing";
  };
  EXPECT_EQ(given(511, 8), "uverbs40");
  EXPECT_EQ(given(511, 9), "nothing");
  EXPECT_EQ(given(511, 10), "nothing");
  std::filesystem::remove(links + "/511:9");
  std::filesystem::create_directory(links + "/511:9");
  EXPECT_EQ(given(511, 9), fmt::format("read the link `{}/511:9`: Invalid argument", links));
}

// A symbolic link to itself stands for whatever cannot be read though it is there: ELOOP.
void make_unreadable(const std::string& path) {
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::create_symlink(path, path);
}

std::string answer_for(const Node& node, const Request& request, const Config& config) {
  const auto inventory = read_node_for({.admin = config, .request = request}, node.settings, false);
  if (!inventory) return inventory.error().message;
  const Candidates among(*inventory, request, config);
  const auto plan = make_plan({among, {}, "/views/key", true});
  return plan ? "given; " + fabric::join(plan->warnings, ", ") : plan.error().message;
}

// Without a PCI function below which its uverbs entry is, it is looked for among all of the class: the class' attribute
// abi_version is no entry.
TEST(ReadNodeFor, ASoftwareDeviceIsFoundBesideTheAttributesOfItsClass) {
  const Node node;
  const std::string link = node.settings.root + "/sys/class/infiniband/mlx5_1/device";
  ASSERT_TRUE(std::filesystem::remove(link));
  ASSERT_TRUE(std::filesystem::is_regular_file(node.settings.root + "/sys/class/infiniband_verbs/abi_version"));
  EXPECT_EQ(answer_for(node, naming("mlx5_1"), {}), "given; ");
}

TEST(ReadNodeFor, WhatCannotBeReadIsNotAbsent) {
  const Config usual;
  Config without_cm;
  without_cm.nodes.rdma_cm = false;
  Config without_view;
  without_view.sysfs_view = false;
  Config with_umad;
  with_umad.nodes.umad = true;
  const struct {
    const char* path;
    const Config& config;
    bool refused;
  } rows[] = {
      {"/sys/class/misc/rdma_cm/dev", usual, true},
      {"/sys/class/misc/rdma_cm/dev", without_cm, false},
      {"/dev/infiniband/rdma_cm", usual, true},
      {"/sys/class/infiniband", usual, true},
      {"/sys/class/infiniband/mlx5_1", usual, true},
      {"/sys/class/infiniband/mlx5_2", usual, false},  // not asked for, hence not read
      {"/sys/class/infiniband_verbs", usual, true},
      {"/sys/class/infiniband_verbs/uverbs1/ibdev", usual, true},
      {"/sys/class/infiniband_verbs/uverbs1/dev", usual, true},
      {"/sys/class/infiniband_verbs/abi_version", usual, true},
      {"/sys/class/infiniband_verbs/abi_version", without_view, false},
      {"/sys/class/infiniband_mad", usual, true},
      {"/sys/class/infiniband_mad", without_view, false},
      {"/sys/class/infiniband_mad", with_umad, true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.path);
    const Node node;
    const std::string path = node.settings.root + row.path;
    make_unreadable(path);
    const std::string refusal = fmt::format("cannot read `{}`: Too many levels of symbolic links", path);
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), row.config), row.refused ? refusal : "given; ");
  }
}

// As after a swap of two names between the look at the HCAs and the look at their uverbs nodes.
TEST(ReadNodeFor, RefusesHcaThatIsRenamedWhileItIsRead) {
  const Node node;
  const std::string sys = node.settings.root + "/sys/class/";
  test_support::write_file(sys + "infiniband_verbs/uverbs0/ibdev", "mlx5_1\n");
  test_support::write_file(sys + "infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
  EXPECT_EQ(answer_for(node, naming("all"), {}),
            fmt::format("cannot read `{}infiniband/mlx5_0`: Stale file handle", sys));
}

TEST(ReadNodeFor, WhatOnlyInformsIsAWarning) {
  const Node node;
  const std::string path = node.settings.root + "/sys/class/net/rail1";
  make_unreadable(path);
  Request request = naming("2");
  request.order = {"rail0"};
  EXPECT_EQ(answer_for(node, request, {}),
            fmt::format("given; cannot read `{}`: Too many levels of symbolic links", path));
}

// What a pool selects by may take the HCA elsewhere than what is seen says: into a pool with other limits, or into
// none.
TEST(ReadNodeFor, WhatPoolsSelectByIsNotAbsentEither) {
  const auto pools = [](auto select) {
    Config config;
    config.pools.push_back({"selected", {}, {Mode::kHca}, {}, std::nullopt});
    select(config.pools.front().selectors);
    config.pools.push_back({"others", {}, {Mode::kHca}, {}, std::nullopt});
    return config;
  };
  const struct {
    const char* path;
    Config config;
  } rows[] = {
      {"/sys/class/infiniband/mlx5_1/device/vendor", pools([](auto& by) { by.vendors = {"1234"}; })},
      {"/sys/class/infiniband/mlx5_1/device/device", pools([](auto& by) { by.device_ids = {"1234"}; })},
      {"/sys/class/infiniband/mlx5_1/device/net", pools([](auto& by) { by.if_names = {"no*"}; })},
      {"/sys/class/net/rail1", pools([](auto& by) { by.if_names = {"no*"}; })},
      {"/sys/class/infiniband/mlx5_1/ports", pools([](auto& by) { by.link_types = {"infiniband"}; })},
      {"/sys/class/infiniband/mlx5_1/ports/1/link_layer", pools([](auto& by) { by.link_types = {"infiniband"}; })},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.path);
    const Node node;
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), row.config), "given; ");
    const std::string path = node.settings.root + row.path;
    make_unreadable(path);
    const std::string unknown =
        fmt::format("its pool is not known: cannot read `{}`: Too many levels of symbolic links", path);
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), row.config), "a test: `mlx5_1`: " + unknown);
    const std::string left_out = "`mlx5_1` is left out: " + unknown;
    EXPECT_TRUE(answer_for(node, naming("all"), row.config).starts_with("given; " + left_out));
    EXPECT_EQ(answer_for(node, naming("3"), row.config).find("asks for 3 HCAs, 2 are free"), 8U);
    Config first = row.config;
    std::swap(first.pools[0], first.pools[1]);
    EXPECT_TRUE(answer_for(node, naming("mlx5_1"), first).starts_with("given; ")) << "whatever it is, this pool has it";
    Request given = naming("all");
    given.given_is_the_grant = true;
    given.given = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
    EXPECT_EQ(answer_for(node, given, row.config), "a test: `mlx5_1`: " + unknown);
  }
}

TEST(ReadNodeFor, ARailCountsFromPoolsThatAreKnown) {
  const Node node;
  Config config;
  config.networks["rails"].name = "rails";
  config.pools.push_back({"rails", {}, {Mode::kShared}, {}, "rails"});
  config.pools.front().selectors.vendors = {"15b3"};
  const auto answer = [&] {
    const Request request = naming("mlx5_2");
    const auto inventory = read_node_for({.admin = config, .request = request}, node.settings, false);
    if (!inventory) return inventory.error().message;
    const Candidates among(*inventory, request, config);
    const auto plan = make_plan({among, {}, "/views/key", false});
    return plan ? fmt::format("rail {}", plan->netdevs.at(0).rail) : plan.error().message;
  };
  EXPECT_EQ(answer(), "rail 2");
  const std::string path = node.settings.root + "/sys/class/infiniband/mlx5_1/device/vendor";
  make_unreadable(path);
  EXPECT_EQ(answer(), fmt::format("the rail of `mlx5_2` is counted from `mlx5_1`: its pool is not known: cannot read "
                                  "`{}`: Too many levels of symbolic links",
                                  path));
  config.rails = {"mlx5_0", "mlx5_7", "mlx5_1", "mlx5_2"};
  EXPECT_EQ(answer(), "rail 2") << "config.json says";
}

TEST(ReadNodeFor, WhatIsNotThereIsAbsent) {
  const Node node;
  for (const char* path : {"/sys/class/misc", "/dev/infiniband/rdma_cm", "/sys/class/infiniband_mad"})
    std::filesystem::remove_all(node.settings.root + path);
  EXPECT_EQ(answer_for(node, naming("mlx5_1"), {}), "given; ");
}

}  // namespace
}  // namespace hook
