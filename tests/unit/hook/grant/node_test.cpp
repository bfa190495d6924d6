// Reads only the facts of a node that the decision needs, and names a pod's HCAs as on the node. The next container
// costs the same with any number of HCAs and grants: the tests count system calls.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/node.hpp"
#include "hook/plan/match.hpp"
#include "hook/program/commands.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "support/rails.hpp"
#include "support/results.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using fabric::Inventory;
using namespace test_support;

struct Node {
  TempDir directory;
  NodeSettings settings;

  explicit Node(fabric::Inventory inventory = test_support::rails(3, 4)) {
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    lay_out(inventory, directory / "node");
    settings.root = directory / "node";
  }

  fabric::Inventory read(const Request& request, const Config& config = {}) const {
    return must(read_node_for({.admin = config, .request = request}, settings, false));
  }
};

Request naming(const std::string& list) {
  Request request;
  request.selection = *parse_selection(list, "a test");
  return request;
}

TEST(ReadNodeFor, ReadsNamedHcasAndNeededFactsOnly) {
  const Node node;
  const auto inventory = node.read(naming("mlx5_1"));
  ASSERT_EQ(inventory.hcas.size(), 1U);
  const fabric::Hca& hca = inventory.hcas.front();
  EXPECT_EQ(hca.name, "mlx5_1");
  EXPECT_EQ(hca.uverbs_dev, "231:193");
  EXPECT_TRUE(hca.pci && hca.class_link && hca.verbs_link);
  EXPECT_TRUE(hca.ports.at(0).is_active());
  EXPECT_FALSE(hca.vendor) << "nothing selects by it";
  EXPECT_TRUE(inventory.netdevs.empty());
  Config config;
  config.pools.push_back({"rails", {}, {Mode::kHca}, {}, std::nullopt});
  EXPECT_TRUE(node.read(naming("mlx5_1"), config).netdevs.empty());
  config.pools.front().selectors.if_names = {"rail*"};
  const auto selected = node.read(naming("mlx5_1"), config);
  ASSERT_EQ(selected.hcas.size(), 1U);
  EXPECT_EQ(selected.hcas.front().ports.at(0).netdev, "rail1");
  EXPECT_FALSE(selected.hcas.front().vendor) << "nothing selects by it";
  config.pools.front().selectors.vendors = {"15b3"};
  EXPECT_TRUE(node.read(naming("mlx5_1"), config).hcas.at(0).vendor);
  for (const char* list : {"all", "2", "rail:1", "mlx5_*"}) {
    const auto seen = node.read(naming(list));
    EXPECT_EQ(seen.hcas.size(), 3U) << list;
    EXPECT_TRUE(seen.netdevs.empty()) << list << ": nothing depends on them";
  }
  EXPECT_EQ(node.read(naming("netdev:rail1")).netdevs.size(), 3U);
  Config networks;
  networks.networks["rails"].name = "rails";
  Request with_rails = naming("all");
  with_rails.network = "rails";
  EXPECT_EQ(node.read(with_rails, networks).netdevs.size(), 3U);
  EXPECT_EQ(node.read(naming("mlx5_7")).hcas.size(), 3U) << "the refusal lists all HCAs";
}

// RDMA_INIT_REQUIRE counts ports that can be used: in the node's network, a RoCE port needs a GID with a local address,
// an InfiniBand port needs none.
TEST(ReadNodeFor, ReadsOneOwnGidOfRocePortsOnly) {
  auto inventory = test_support::rails(3);
  inventory.hcas[1].ports.at(0).link_layer = "InfiniBand";
  inventory.netdevs.at(3).addresses.clear();
  const Node node(inventory);
  ContainerRequest requesting{.request = naming("mlx5_0,mlx5_1,mlx5_2")};
  auto live = must(read_node_for(requesting, node.settings, true));
  const auto port = [&](std::size_t hca) { return live.hcas.at(hca).ports.at(0); };
  EXPECT_EQ(port(0).netdev, "rail0");
  EXPECT_EQ(port(0).gids.size(), 2U) << "the first of RoCE v2 will do";
  EXPECT_FALSE(port(1).netdev);
  EXPECT_TRUE(port(1).gids.empty());
  EXPECT_TRUE(port(2).gids.empty()) << "rail2 has no address";
  EXPECT_EQ(live.netdevs.size(), 4U);
  const auto plan = must(make_plan({.among = Candidates(live, *requesting.request, {}),
                                    .holdings = {},
                                    .view_directory = "/views",
                                    .host_network = true,
                                    .variables = true}));
  EXPECT_EQ(plan.env.at("RDMA_INIT_REQUIRE"), "1") << "of one link layer";

  requesting.spec.has_netns = true;
  live = must(read_node_for(requesting, node.settings, true));
  EXPECT_EQ(port(0).netdev, "rail0");
  EXPECT_EQ(live.netdevs.at(0).addresses.size(), 2U) << "rdma-init gets these";
  EXPECT_TRUE(port(0).gids.empty());
}

// Moved netdevs bring their addresses if the network has no ranges.
TEST(ReadNodeFor, ReadsAddressesThatRailsBringAlong) {
  const Node node(test_support::rails(2));
  ContainerRequest requesting{.request = naming("mlx5_0,mlx5_1")};
  requesting.spec.has_netns = true;
  requesting.request->network = "fabric";
  Network& network = requesting.admin.networks["fabric"];
  network.mode = Mode::kExclusive;
  const auto addresses = [&](bool variables) {
    const auto live = must(read_node_for(requesting, node.settings, variables));
    std::size_t count = 0;
    for (const fabric::Netdev& netdev : live.netdevs)
      count += netdev.addresses.size();
    EXPECT_EQ(live.netdevs.size(), 2U) << "no other netdevs";
    // The first GID is RoCE v1; the second shows that the adapter supports v2.
    EXPECT_EQ(live.hcas.at(0).ports.at(0).gids.size(), variables ? 2U : 0U);
    return count;
  };
  EXPECT_EQ(addresses(true), 4U);
  EXPECT_EQ(addresses(false), 0U);
  network.ranges.resize(1);
  EXPECT_EQ(addresses(true), 0U);
  network.ranges[0].rail = 0;
  EXPECT_EQ(addresses(true), 4U) << "there may be other rails";
}

// NVIDIA's device plugin and runtime name GPUs in a variable, and add no device nodes.
TEST(ReadNodeFor, ReadsGpusByTheUuidsOfTheDriver) {
  const std::string uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  auto inventory = test_support::rails(2);
  for (std::size_t i = 0; i < 2; ++i)
    inventory.hcas[i].pci_path = {{fmt::format("0000:0{}:00.0", i)}};
  inventory.gpus = {{.pci = "0000:81:00.0", .numa_node = 0, .pci_path = {{"0000:00:00.0"}}, .uuid = std::nullopt},
                    {.pci = "0000:82:00.0", .numa_node = 0, .pci_path = {{"0000:01:00.0"}}, .uuid = uuid}};
  const Node node(inventory);
  Request request = naming("gpu");
  request.gpu_uuids = {uuid};
  const auto live = node.read(request);
  const auto gpus = must(live.gpus);
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus.at(0).uuid, std::nullopt);
  EXPECT_EQ(gpus.at(1).uuid, uuid);
  const auto plan = must(make_plan({Candidates(live, request, {}), {}, "/views"}));
  ASSERT_EQ(plan.hcas.size(), 1U);
  EXPECT_EQ(plan.hcas.front().name, "mlx5_1");
  EXPECT_EQ(read_tree(node.settings.root, true).gpus->at(1).uuid, uuid) << "for snapshots";
}

TEST(ReadNodeFor, FindsGrantedNodesByNumberInTheOrderOfTheirNetdevs) {
  const Node node;
  Request request = naming("mlx5_0");
  request.granted_nodes = {{"/dev/x", 'c', 231, 194}};
  const auto both = node.read(request).hcas;
  ASSERT_EQ(both.size(), 2U) << "the named HCA and the HCA of its node";
  EXPECT_EQ(both.back().name, "mlx5_2");
  request = naming("all");
  request.has_nodes_of_grant = true;
  request.granted_nodes = {{"/dev/infiniband/uverbs0", 'c', 231, 192}, {"/dev/infiniband/uverbs2", 'c', 231, 194}};
  request.order = {"rail2", "rail0"};
  const auto inventory = node.read(request);
  const Config config;
  const Candidates among(inventory, request, config);
  ASSERT_EQ(among.granted.size(), 2U);
  EXPECT_EQ(among.granted.front()->name(), "mlx5_2");
}

TEST(ReadNodeFor, FindsHcaOfDynamicDeviceNumber) {
  const Node node;
  const std::string links = node.settings.root + "/sys/dev/char";
  fs::create_directories(links);
  fs::create_symlink("../../devices/x/infiniband_verbs/uverbs40", links + "/511:8");
  fs::create_symlink("../../devices/virtual/nvidia-uvm/uverbs41", links + "/511:9");
  const auto granted = [&](std::int64_t major, std::int64_t minor) {
    ContainerSpec spec;
    spec.devices = {{"/dev/x", 'c', major, minor}};
    const auto requesting = understand_spec(spec, Config(), {Engine::kRunc}, node.settings.root);
    if (!requesting) return requesting.error().message;
    return requesting->request ? fmt::format("uverbs{}", requesting->request->granted_nodes.at(0).uverbs().value())
                               : "nothing";
  };
  EXPECT_EQ(granted(511, 8), "uverbs40");
  EXPECT_EQ(granted(511, 9), "nothing");
  EXPECT_EQ(granted(511, 10), "nothing");
  fs::remove(links + "/511:9");
  fs::create_directory(links + "/511:9");
  EXPECT_EQ(granted(511, 9), fmt::format("read the link `{}/511:9`: Invalid argument", links));
}

// A symbolic link to itself stands for a file that exists but cannot be read: ELOOP.
void make_unreadable(const std::string& path) {
  fs::remove_all(path);
  fs::create_directories(fs::path(path).parent_path());
  fs::create_symlink(path, path);
}

std::string answer_for(const Node& node, const Request& request, const Config& config) {
  const auto inventory = read_node_for({.admin = config, .request = request}, node.settings, false);
  if (!inventory) return inventory.error().message;
  const Candidates among(*inventory, request, config);
  const auto plan = make_plan({among, {}, "/views/key", true});
  return plan ? "given; " + base::join(plan->warnings, ", ") : plan.error().message;
}

TEST(ReadNodeFor, MissingFilesCountAsAbsent) {
  const Node without;
  for (const char* path : {"/sys/class/misc", "/dev/infiniband/rdma_cm", "/sys/class/infiniband_mad"})
    fs::remove_all(without.settings.root + path);
  EXPECT_EQ(answer_for(without, naming("mlx5_1"), {}), "given; ");
  // Without a PCI function, its uverbs entry is searched in the whole class. The attribute abi_version of the class is
  // no entry.
  const Node node;
  ASSERT_TRUE(fs::remove(node.settings.root + "/sys/class/infiniband/mlx5_1/device"));
  ASSERT_TRUE(fs::is_regular_file(node.settings.root + "/sys/class/infiniband_verbs/abi_version"));
  EXPECT_EQ(answer_for(node, naming("mlx5_1"), {}), "given; ");
}

TEST(ReadNodeFor, UnreadableFilesAreErrors) {
  const Config usual;
  Config without_cm;
  without_cm.nodes.rdma_cm = false;
  Config without_view;
  without_view.sysfs_view = false;
  Config with_umad;
  with_umad.nodes.umad = true;
  const std::tuple<const char*, const Config&, bool> rows[] = {
      {"/sys/class/misc/rdma_cm/dev", usual, true},
      {"/sys/class/misc/rdma_cm/dev", without_cm, false},
      {"/dev/infiniband/rdma_cm", usual, true},
      {"/sys/class/infiniband", usual, true},
      {"/sys/class/infiniband/mlx5_1", usual, true},
      {"/sys/class/infiniband/mlx5_2", usual, false},  // not requested, so not read
      {"/sys/class/infiniband_verbs", usual, true},
      {"/sys/class/infiniband_verbs/uverbs1/ibdev", usual, false},  // one HCA on the function: the node is its own
      {"/sys/class/infiniband_verbs/uverbs1/dev", usual, true},
      {"/sys/class/infiniband_verbs/abi_version", usual, true},
      {"/sys/class/infiniband_verbs/abi_version", without_view, false},
      {"/sys/class/infiniband_mad", usual, true},
      {"/sys/class/infiniband_mad", without_view, false},
      {"/sys/class/infiniband_mad", with_umad, true}};
  for (const auto& [file, config, refused] : rows) {
    SCOPED_TRACE(file);
    const Node node;
    const std::string path = node.settings.root + file;
    make_unreadable(path);
    const std::string refusal = fmt::format("cannot read `{}`: Too many levels of symbolic links", path);
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), config), refused ? refusal : "given; ");
  }
}

// As mana_ib makes two HCAs for one function.
TEST(ReadNodeFor, ReadsWhoseUverbsNodeItIsIfAFunctionHasTwoHcas) {
  const Node node;
  const std::string sys = node.settings.root + "/sys/class/";
  ASSERT_TRUE(fs::create_directory(sys + "infiniband/mlx5_1/device/infiniband/second"));
  EXPECT_EQ(answer_for(node, naming("mlx5_1"), {}), "given; ");
  const std::string path = sys + "infiniband_verbs/uverbs1/ibdev";
  make_unreadable(path);
  EXPECT_EQ(answer_for(node, naming("mlx5_1"), {}),
            fmt::format("cannot read `{}`: Too many levels of symbolic links", path));
}

// Two HCAs swap names after the read of the HCAs, before the read of their uverbs nodes.
TEST(ReadNodeFor, RefusesHcaThatIsRenamedWhileItIsRead) {
  const Node node;
  const std::string sys = node.settings.root + "/sys/class/";
  write_file(sys + "infiniband_verbs/uverbs0/ibdev", "mlx5_1\n");
  write_file(sys + "infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
  EXPECT_EQ(answer_for(node, naming("all"), {}),
            fmt::format("cannot read `{}infiniband/mlx5_0`: Stale file handle", sys));
}

TEST(ReadNodeFor, UnreadableInformationIsAWarning) {
  const Node node;
  const std::string path = node.settings.root + "/sys/class/net/rail1";
  make_unreadable(path);
  Request request = naming("2");
  request.order = {"rail0"};
  EXPECT_EQ(answer_for(node, request, {}),
            fmt::format("given; cannot read `{}`: Too many levels of symbolic links", path));
}

// An unreadable selector may put the HCA into another pool, with other limits, or into none.
TEST(ReadNodeFor, UnreadableSelectorOfPoolIsAnError) {
  const auto pools = [](auto select) {
    Config config;
    config.pools.push_back({"selected", {}, {Mode::kHca}, {}, std::nullopt});
    select(config.pools.front().selectors);
    config.pools.push_back({"others", {}, {Mode::kHca}, {}, std::nullopt});
    return config;
  };
  const std::pair<const char*, Config> rows[] = {
      {"/sys/class/infiniband/mlx5_1/device/vendor", pools([](auto& by) { by.vendors = {"1234"}; })},
      {"/sys/class/infiniband/mlx5_1/device/device", pools([](auto& by) { by.device_ids = {"1234"}; })},
      {"/sys/class/infiniband/mlx5_1/device/net", pools([](auto& by) { by.if_names = {"no*"}; })},
      {"/sys/class/net/rail1", pools([](auto& by) { by.if_names = {"no*"}; })},
      {"/sys/class/infiniband/mlx5_1/ports", pools([](auto& by) { by.link_types = {"infiniband"}; })},
      {"/sys/class/infiniband/mlx5_1/ports/1/link_layer", pools([](auto& by) { by.link_types = {"infiniband"}; })}};
  for (const auto& [file, config] : rows) {
    SCOPED_TRACE(file);
    const Node node;
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), config), "given; ");
    const std::string path = node.settings.root + file;
    make_unreadable(path);
    const std::string unknown =
        fmt::format("its pool is unknown: cannot read `{}`: Too many levels of symbolic links", path);
    EXPECT_EQ(answer_for(node, naming("mlx5_1"), config), "a test: `mlx5_1`: " + unknown);
    const std::string left_out = "`mlx5_1` is skipped: " + unknown;
    EXPECT_TRUE(answer_for(node, naming("all"), config).starts_with("given; " + left_out));
    EXPECT_EQ(answer_for(node, naming("3"), config).find("requests 3 HCAs, 2 are free"), 8U);
    Config first = config;
    std::swap(first.pools[0], first.pools[1]);
    EXPECT_TRUE(answer_for(node, naming("mlx5_1"), first).starts_with("given; "))
        << "this pool has the HCA in any case";
    Request granted = naming("all");
    granted.has_nodes_of_grant = true;
    granted.granted_nodes = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
    EXPECT_EQ(answer_for(node, granted, config), "a test: `mlx5_1`: " + unknown);
  }
}

TEST(ReadNodeFor, RailNumberNeedsKnownPools) {
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
  EXPECT_EQ(answer(), fmt::format("the rail of `mlx5_2` depends on `mlx5_1`: its pool is unknown: cannot read `{}`: "
                                  "Too many levels of symbolic links",
                                  path));
  config.rails = test_support::rails_of(R"(["mlx5_0", "mlx5_7", "mlx5_1", "mlx5_2"])");
  EXPECT_EQ(answer(), "rail 2") << "config.json lists the rails";
}

// "rails" selects by facts that are read only for it, also of a VF in a container.
TEST(ReadNodeFor, ReadsFactsThatRailsSelectBy) {
  auto inventory = test_support::rails(3);
  test_support::add_vfs(inventory, 1);
  inventory.hcas[1].node_guid = "0c42:a103:0000:0099";
  const Node node(inventory);
  ContainerRequest requesting{.request = naming("mlx5_1,mlx5_2,mlx5_3")};
  requesting.spec.has_netns = true;
  const auto reported = [&](const char* rails, bool has_pfs = true) {
    requesting.admin.rails = test_support::rails_of(rails);
    auto live = must(read_node_for(requesting, node.settings, true));
    for (fabric::Hca& hca : live.hcas)
      if (!has_pfs) hca.pfs.clear();
    const auto plan = must(make_plan({.among = Candidates(live, *requesting.request, requesting.admin),
                                      .holdings = {},
                                      .view_directory = "/views",
                                      .variables = true}));
    const auto found = plan.env.find("RDMA_INIT_RAILS");
    return found == plan.env.end() ? "" : found->second;
  };
  EXPECT_EQ(reported(R"(["mlx5_2", "mlx5_9", "mlx5_1"])"), "mlx5_1=2,mlx5_2=0");
  EXPECT_EQ(reported(R"(["guid:*99", ["pci:*:12:00.0", "pf:mlx5_0"]])"), "mlx5_1=0,mlx5_2=1.0,mlx5_3=1.1");
  EXPECT_EQ(reported(R"(["pf:mlx5_0"])", false), "mlx5_3=0") << "read in a container, which does not show its PF";
}

Inventory node_with(const std::string& hca, std::optional<std::string> netdev) {
  Inventory inventory;
  inventory.hcas.push_back(test_support::hca(hca, 0, {ethernet_port({})}));
  inventory.hcas[0].ports[0].netdev = std::move(netdev);
  return inventory;
}

class OwnHcas : public testing::Test {
 protected:
  void write(const NetnsIdentity& netns, RailKind kind = RailKind::kMove) const {
    NetworkRecord record{owner_.key, netns, 1, {}};
    RailRecord rail;
    rail.rail.hca = "mlx5_0";
    rail.rail.name = "net1";
    rail.rail.kind = kind;
    rail.network = "rails";
    rail.host.name = "eth7";
    rail.host.mac = {2, 0, 0, 0, 0, 0xab};
    for (const char* own : {"10.1.0.7", "fe80::7"})
      rail.host.records.push_back(address_record(7, *fabric::parse_address(own), 24));
    record.rails.push_back(rail);
    const auto store = NetworkRecordStore::open(ledger_.path());
    ASSERT_TRUE(store && store->write(record));
  }
  // Returns "HCA NETDEV-OF-PORT ...", or the error.
  std::string after(Inventory inventory) const {
    const auto added = add_own_hcas(ledger_.path(), owner_, "", inventory);
    if (!added) return added.error().message;
    std::string text;
    for (const fabric::Hca& hca : inventory.hcas)
      text += hca.name + " " + hca.ports.at(0).netdev.value_or("-");
    for (const fabric::Netdev& netdev : inventory.netdevs) {
      text += " " + netdev.name + " " + netdev.mac.value_or("?") + (netdev.is_here() ? " here" : "");
      for (const fabric::InterfaceAddress& own : netdev.addresses)
        text += fmt::format(" {}/{}", to_string(own.address), own.prefix.value_or(0));
    }
    return text;
  }

  TempDir ledger_;
  const Owner owner_ = netns_owner(identify_netns("/proc/self/ns/net").value());
};

TEST_F(OwnHcas, NamesMovedNetdevsAsOnNode) {
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "no record";
  write(*owner_.netns);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 eth7 eth7 02:00:00:00:00:ab 10.1.0.7/24");
  EXPECT_EQ(after(node_with("mlx5_0", "net1")), "mlx5_0 eth7 eth7 02:00:00:00:00:ab 10.1.0.7/24") << "read inside";
  EXPECT_EQ(after(node_with("mlx5_0", "eth8")), "mlx5_0 eth8") << "it has returned, and belongs to another owner";
  write(*owner_.netns, RailKind::kMacvlan);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "its netdev never left";
  auto other = *owner_.netns;
  other.ino ^= 1;
  write(other);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "a namespace that is gone";
}

TEST_F(OwnHcas, UnreadableRecordIsAnError) {
  ASSERT_EQ(symlink("network", (ledger_ / "network").c_str()), 0);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)),
            "cannot read `" + ledger_.path() + "/network/" + owner_.key + ".json`: Too many levels of symbolic links");
}

// An RDMA device that is not in the namespace either stays unknown.
TEST_F(OwnHcas, MissingHcaStaysUnknown) {
  write(*owner_.netns);
  EXPECT_EQ(after(node_with("test_hca_9", "eth0")), "test_hca_9 eth0");
}

constexpr unsigned kFew = 8;
constexpr unsigned kMany = 128;

// Lays out RoCE rails, each with a netdev, like VFs.
std::string node_of(const TempDir& directory, unsigned hcas) {
  constexpr unsigned kSlots = 16;
  const std::string root = directory / std::to_string(hcas);
  lay_out(test_support::rails(hcas, kSlots), root, {.full = true});
  return root;
}

// Returns the system calls up to the plan; -1: no plan, or calls cannot be counted here.
long calls_to_decide(const std::string& root, const Request& request, const Config& config) {
  NodeSettings settings;
  settings.root = root;
  const auto counted = run_traced(
      [&] {
        const auto inventory = read_node_for({.admin = config, .request = request}, settings, false);
        if (!inventory) return 1;
        const Candidates among(*inventory, request, config);
        return make_plan({among, {}, "/views/key", false}) ? 0 : 1;
      },
      -1);
  return counted.possible && counted.exit_code == 0 ? counted.calls : -1;
}

Request request_for(const std::string& list) {
  Request request;
  request.selection = *parse_selection(list, "a test");
  return request;
}

Request granted_nodes() {
  Request request = request_for("all");
  request.has_nodes_of_grant = true;
  request.granted_nodes = {{"/dev/infiniband/uverbs3", 'c', 231, 195}};
  return request;
}

Request narrowed() {
  Request request = granted_nodes();
  request.narrowed_by = {*parse_selection("index:3", "a test")};
  return request;
}

// Only the names of other HCAs are read: 32 bytes of a listing each.
constexpr long kListing = (kMany - kFew) * 48 / 8192 + 1;

// A request that can match all HCAs reads few facts of each. A request with names reads these HCAs only.
TEST(Scale, ReadsNamedHcasOnly) {
  Config selecting;
  selecting.pools.push_back({"rails", {}, {}, {}, {}});
  selecting.pools.front().selectors.vendors = {"15b3"};
  selecting.pools.front().selectors.if_names = {"rail*"};
  selecting.pools.front().selectors.link_types = {"ether"};
  Config listed = selecting;
  listed.networks["rails"].name = "rails";
  listed.pools.front().network = "rails";
  listed.rails = test_support::rails_of(R"(["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"])");
  Config multi = listed;
  multi.pools.front().modes = {Mode::kSharedMulti};
  Config not_listed;
  not_listed.networks["rails"].name = "rails";
  not_listed.pools.push_back({"rails", {}, {}, {}, "rails"});
  constexpr long kOthers = kMany - kFew;
  const std::tuple<const char*, Request, Config, long> cases[] = {
      {"named", request_for("mlx5_3"), {}, 0},
      {"several", request_for("mlx5_3,mlx5_1"), {}, 0},
      {"pools that select", request_for("mlx5_3"), selecting, 0},
      {"given nodes", granted_nodes(), selecting, 0},
      {"narrowed by index", narrowed(), selecting, kListing},
      {"rails that are listed", request_for("mlx5_3"), listed, kListing},
      {"with GID tables", request_for("mlx5_3"), multi, kListing},
      {"rails that are not listed", request_for("mlx5_3"), not_listed, kOthers + kListing},
      {"a count", request_for("2"), {}, kOthers * 18 + kListing}};
  const TempDir directory;
  const std::string few = node_of(directory, kFew);
  const std::string many = node_of(directory, kMany);
  for (const auto& [name, request, config, more] : cases) {
    const long least = calls_to_decide(few, request, config);
    ASSERT_GT(least, 0) << name;
    EXPECT_LE(calls_to_decide(many, request, config), least + more) << name;
  }
}

TEST(Scale, DevicesReadsEachHcaOnce) {
  const auto calls = [](const std::string& root) {
    return run_traced(
               [&] {
                 Options options;
                 options.command = Command::kDevices;
                 options.node.root = root;
                 options.node.ledger = root + "/none";
                 options.node.config = {root + "/none.json", "", false};
                 if (!std::freopen("/dev/null", "w", stdout)) return 2;
                 return run_command(options);
               },
               -1)
        .calls;
  };
  const TempDir directory;
  const long few = calls(node_of(directory, kFew));
  const long more = calls(node_of(directory, kMany)) - few;
  EXPECT_GT(few, kFew);
  EXPECT_LE(more, (kMany - kFew) * 34);
}

}  // namespace
}  // namespace hook
