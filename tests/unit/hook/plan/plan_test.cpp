// The HCAs of a container, the plan that follows, refusals, and renumbered uverbs nodes.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/node_needs.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/request/parsers.hpp"
#include "support/inventories.hpp"
#include "support/rails.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using namespace test_support;
using Strings = std::vector<std::string>;

// The input of a decision: rails(4), no configuration, no grants.
struct PlanScene {
  fabric::Inventory inventory = rails(4);
  Request request;
  Config config;
  Holdings holdings;
  bool host_network = false;
  ViewMount view_mount = ViewMount::kBind;
  Lendable lendable = {};
  bool variables = false;
  std::optional<base::Result<fabric::LentFile>> topology = {};
};

PlanScene requesting(std::string_view selection) {
  PlanScene scene;
  scene.request.selection = *parse_selection(selection, "annotation rdma-init.io/devices");
  return scene;
}

// The given nodes are the request.
PlanScene granted(std::initializer_list<unsigned> numbers) {
  PlanScene scene;
  scene.request.selection.kind = HcaSelection::Kind::kAll;
  scene.request.selection.source = "/dev/infiniband/uverbs* of the container";
  scene.request.has_nodes_of_grant = true;
  for (const unsigned number : numbers)
    scene.request.granted_nodes.push_back({fmt::format("/dev/infiniband/uverbs{}", number), 'c', 231, 192 + number});
  return scene;
}

base::Result<Plan> decide(const PlanScene& scene) {
  const Candidates among(scene.inventory, scene.request, scene.config);
  PlanInput input{among, scene.holdings, "/run/v", scene.host_network, scene.view_mount, scene.variables};
  input.lendable = scene.lendable;
  input.topology = scene.topology;
  return make_plan(input);
}

// Returns "mlx5_0 mlx5_1*2", or the error.
std::string hcas(const PlanScene& scene) {
  const auto plan = decide(scene);
  if (!plan) return plan.error().message;
  Strings names;
  for (const PlannedHca& hca : plan->hcas)
    names.push_back(hca.units > 1 ? fmt::format("{}*{}", hca.name, hca.units) : hca.name);
  return base::join(names, " ");
}

// Return the result with another request, of source "x", or another mode, which stays set in the scene.
std::string hcas(PlanScene& scene, std::string_view selection) {
  scene.request.selection = *parse_selection(selection, "x");
  return hcas(scene);
}

std::string hcas(PlanScene& scene, Mode mode) {
  scene.request.mode = mode;
  return hcas(scene);
}

std::string narrowed(PlanScene& scene, std::string_view selection, const char* source = "annotation a") {
  scene.request.narrowed_by = {*parse_selection(selection, source)};
  return hcas(scene);
}

std::string near_gpus(PlanScene& scene, Strings nodes) {
  scene.request.gpu_nodes = std::move(nodes);
  return hcas(scene);
}

std::string netdevs(const PlanScene& scene) {
  const auto plan = decide(scene);
  if (!plan) return plan.error().message;
  Strings texts;
  for (const PlannedNetdev& netdev : plan->netdevs)
    texts.push_back(fmt::format("{}={}:{}@{}", netdev.name, to_string(netdev.mode), netdev.host, netdev.rail));
  return base::join(texts, " ");
}

std::string netdevs(PlanScene& scene, Mode mode) {
  scene.request.mode = mode;
  return netdevs(scene);
}

// Returns the HCAs that are locked for the decision.
std::string locked(const PlanScene& scene) {
  return base::join(Candidates(scene.inventory, scene.request, scene.config).names(), " ");
}

Holding held_by(std::string who) {
  return {.exclusive_owner = std::move(who), .others = 1};
}

Holding own(unsigned units = 1) {
  return {.own = true, .own_units = units, .exclusive_owner = {}};
}

Config with_network(Mode mode, std::string child = "macvlan") {
  Config config;
  config.networks["fabric"] = {"fabric", mode, std::move(child), std::nullopt};
  return config;
}

// Two GPUs per switch, two switches per socket; mlx5_I shares its switch with GPUs 2I and 2I+1.
void add_gpus(fabric::Inventory& inventory) {
  std::vector<fabric::Gpu> gpus;
  for (unsigned i = 0; i < 8; ++i) {
    fabric::Gpu& gpu = gpus.emplace_back();
    gpu.pci = fmt::format("0000:{:02x}:00.0", 0x80 + i);
    gpu.numa_node = static_cast<int>(i / 4);
    gpu.pci_path = {{fmt::format("0000:{:02x}:01.0", i / 4), fmt::format("0000:{:02x}:00.0", 0x40 + i / 2)}};
  }
  inventory.gpus = gpus;
  for (unsigned i = 0; i < inventory.hcas.size(); ++i) {
    inventory.hcas[i].numa_node = static_cast<int>(i / 2);
    inventory.hcas[i].pci_path = {{fmt::format("0000:{:02x}:01.0", i / 2), fmt::format("0000:{:02x}:00.0", 0x40 + i)}};
  }
}

TEST(Plan, MatchesRequests) {
  const std::pair<const char*, const char*> rows[] = {
      {"all", "mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
      {"2", "mlx5_0 mlx5_1"},
      {"4", "mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
      {"mlx5_2,mlx5_0", "mlx5_2 mlx5_0"},
      {"mlx5_1,mlx5_1,mlx5_1:1", "mlx5_1"},
      {"mlx5_*", "mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
      {"^mlx5_1,rail:0", "mlx5_2 mlx5_3"},
      {"netdev:rail3", "mlx5_3"},
      {"pci:0000:11:00.0", "mlx5_1"},
      {"pci:12:00.0", "mlx5_2"},
      {"guid:a088:c203:0010:0003", "mlx5_3"},
      {"index:1,rail:0", "mlx5_1 mlx5_0"},
      {"none", ""},
      {"5", "annotation rdma-init.io/devices: requests 5 HCAs, 4 are free"},
      {"mlx5_9", "annotation rdma-init.io/devices: no HCA matches `mlx5_9`"},
      {"mlx5_1:2", "annotation rdma-init.io/devices: no HCA matches `mlx5_1:2`"},
      {"netdev:eth7", "annotation rdma-init.io/devices: no HCA matches `netdev:eth7`"},
      {"rail:4", "annotation rdma-init.io/devices: no HCA matches `rail:4`"},
      {"index:9", "annotation rdma-init.io/devices: no HCA matches `index:9`"},
      {"^mlx5_*", "annotation rdma-init.io/devices: the node has no HCA for containers"},
      {"gpu", "annotation rdma-init.io/devices: no GPU of the container is known"}};
  for (const auto& [selection, expected] : rows)
    EXPECT_EQ(hcas(requesting(selection)), expected) << selection;
  EXPECT_EQ(decide(requesting("mlx5_9")).error().hint, "select one of the node's HCAs: mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  EXPECT_EQ(decide(requesting("rail:12")).error().hint,
            "select one of the node's rails: rail:0, rail:1, rail:2, rail:3");
  EXPECT_EQ(decide(requesting("5")).error().hint, "request at most 4 of mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  PlanScene other = requesting("mlx5_99");
  other.inventory = rails(12);
  EXPECT_EQ(decide(other).error().hint,
            "select one of the node's HCAs: mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_7 and 4 more");
  other.inventory = {};
  EXPECT_EQ(hcas(other, "all"), "x: the node has no HCA for containers");
  EXPECT_EQ(decide(other).error().hint, "load the node's RDMA driver");
}

TEST(Plan, FillsAllParts) {
  PlanScene scene = requesting("mlx5_2");
  scene.host_network = true;
  scene.variables = true;
  const auto plan = must(decide(scene));
  EXPECT_EQ(plan_json(plan).dump(),
            R"({"hcas":["mlx5_2"],"nodes":[{"path":"/dev/infiniband/uverbs2","type":"c","major":231,"minor":194,)"
            R"("mode":"0666"},{"path":"/dev/infiniband/rdma_cm","type":"c","major":10,"minor":null,"mode":"0666"}],)"
            R"("memlock":"unlimited","capabilities":["CAP_IPC_LOCK"],"netdevs":[],"env":{"RDMA_INIT_REQUIRE":"1"},)"
            R"("mounts":[{"destination":"/sys/class/infiniband",)"
            R"("source":"/run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband","type":"bind",)"
            R"("options":["bind","ro","nosuid","nodev","noexec"]},{"destination":"/sys/class/infiniband_verbs",)"
            R"("source":"/run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband_verbs","type":"bind",)"
            R"("options":["bind","ro","nosuid","nodev","noexec"]}],)"
            R"("warnings":[]})");
  EXPECT_EQ(plan_json(Plan{}).dump(), R"({"hcas":[],"nodes":[],"memlock":null,"capabilities":[],"netdevs":[],)"
                                      R"("env":{},"mounts":[],"warnings":[]})");
  EXPECT_EQ(plan_text(plan),
            "HCA         mlx5_2  hca\n"
            "node        /dev/infiniband/uverbs2  c 231:194  0666\n"
            "node        /dev/infiniband/rdma_cm  c 10:?  0666\n"
            "memlock     unlimited\n"
            "capability  CAP_IPC_LOCK (only with rdma-runtime)\n"
            "env         RDMA_INIT_REQUIRE=1\n"
            "mount       /sys/class/infiniband  from /run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband\n"
            "mount       /sys/class/infiniband_verbs  from "
            "/run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband_verbs\n");
}

TEST(Plan, WrapsWarningsOfItsText) {
  Plan plan;
  plan.warnings = {"a warning" + std::string(20, 'x') + " about one rail with a name" + std::string(30, 'y') +
                   " that another rail has too"};
  EXPECT_EQ(plan_text(plan),
            "HCAs        none\n"
            "warning     a warning" +
                std::string(20, 'x') + " about one rail with a\n            name" + std::string(30, 'y') +
                " that another rail has too\n");
}

TEST(Plan, PlansDeviceNodes) {
  PlanScene scene = requesting("mlx5_0");
  fabric::Hca& hca = scene.inventory.hcas[0];
  hca.mad_nodes = {{"umad0", "231:0", 1, "../u"}, {"issm0", "231:64", 1, "../i"}};
  hca.uverbs = 40;
  hca.uverbs_dev = "511:8";
  scene.inventory.rdma_cm_dev = "10:58";
  const auto paths = [&] {
    const auto plan = decide(scene);
    Strings texts;
    for (const PlannedNode& node : plan->nodes)
      texts.push_back(fmt::format("{} {}:{} {:o} {}:{}", node.path.substr(16), node.major.value_or(0),
                                  node.minor.value_or(0), node.mode, node.uid, node.gid));
    return base::join(texts, ", ");
  };
  EXPECT_EQ(paths(), "uverbs40 511:8 666 0:0, rdma_cm 10:58 666 0:0");
  scene.config.nodes.umad = true;
  scene.config.nodes.gid = 7;
  scene.config.nodes.mode = 0660;
  EXPECT_EQ(paths(), "uverbs40 511:8 660 0:7, umad0 231:0 660 0:7, rdma_cm 10:58 660 0:7");
  scene.config.nodes = {};
  scene.config.nodes.issm = true;
  scene.config.nodes.rdma_cm = false;
  EXPECT_EQ(paths(), "uverbs40 511:8 666 0:0, issm0 231:64 666 0:0");
  // A number beyond the fixed range is unknown: null, never a guess.
  hca.uverbs_dev.reset();
  EXPECT_EQ(decide(scene)->nodes[0].major, std::nullopt);
  scene.config.nodes.rdma_cm = true;
  scene.inventory.rdma_cm = false;
  EXPECT_EQ(decide(scene)->nodes.size(), 2U);
}

TEST(Plan, SkipsHcasWithoutNodeOrLink) {
  PlanScene scene = requesting("all");
  scene.inventory.hcas[1].uverbs.reset();
  scene.inventory.hcas[2].ports[0].state = "1: DOWN";
  scene.host_network = true;
  scene.variables = true;
  const auto plan = must(decide(scene));
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_2 mlx5_3");
  EXPECT_EQ(plan.warnings, (Strings{"`mlx5_1` is skipped: it has no uverbs node", "`mlx5_2` has no ACTIVE port"}));
  EXPECT_EQ(plan.env.at("RDMA_INIT_REQUIRE"), "2");
  EXPECT_EQ(hcas(scene, "2"), "mlx5_0 mlx5_3");  // an ACTIVE port is better than a lower number
  EXPECT_EQ(hcas(scene, "mlx5_1"), "x: `mlx5_1` has no uverbs node");
  EXPECT_EQ(decide(scene).error().hint, "run `modprobe ib_uverbs`");
  scene.request.selection = *parse_selection("mlx5_2", "x");
  EXPECT_FALSE(decide(scene)->env.contains("RDMA_INIT_REQUIRE"));
}

TEST(Plan, TakesGrantedNodesForTheGrant) {
  PlanScene scene = granted({3, 1});
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_3");
  scene.request.order = {"0000:13:00.0", "0000:10:00.0"};
  EXPECT_EQ(hcas(scene), "mlx5_3 mlx5_1");  // names and orders, never adds
  EXPECT_EQ(narrowed(scene, "mlx5_1,mlx5_0"), "mlx5_1");
  EXPECT_EQ(narrowed(scene, "mlx5_0"), "annotation a: selects none of the container's HCAs");
  EXPECT_EQ(narrowed(scene, "1"), "mlx5_3");
  EXPECT_EQ(narrowed(scene, "3"), "mlx5_3 mlx5_1");
  EXPECT_EQ(decide(scene)->warnings, Strings{"annotation a requests 3 HCAs, but can only narrow the HCAs of "
                                             "/dev/infiniband/uverbs* of the container, which has 2"});
  const PlanScene unknown = granted({7});
  EXPECT_EQ(hcas(unknown), "");
  ASSERT_EQ(decide(unknown)->warnings.size(), 1U);
  EXPECT_TRUE(decide(unknown)->warnings[0].starts_with(
      "`/dev/infiniband/uverbs7` in linux.devices belongs to no HCA of this node and is not changed"));
  EXPECT_EQ(hcas(granted({7, 3})), "mlx5_3") << "the other node still counts";
  PlanScene other = granted({0});
  other.inventory.hcas[0].uverbs_dev = "231:193";
  EXPECT_EQ(hcas(other),
            "`/dev/infiniband/uverbs0` in linux.devices has device number 231:192, but on this node it has 231:193");
  PlanScene any = granted({});
  const auto with = [&](std::vector<SpecDevice> devices) {
    any.request.granted_nodes = std::move(devices);
    return hcas(any);
  };
  const SpecDevice foreign{"/dev/infiniband/../infiniband/uverbs1", 'c', 231, 193};
  EXPECT_EQ(with({foreign}), "mlx5_1");
  EXPECT_EQ(with({foreign, {"/dev/infiniband/uverbs1", 'c', 231, 193}}), "mlx5_1");
  EXPECT_EQ(with({{"/dev/\n", 'c', 231, 200}}), "");
  EXPECT_TRUE(decide(any)->warnings[0].starts_with("`/dev/?` in linux.devices belongs to no HCA of this node"));
  EXPECT_EQ(with({{"/dev/infiniband/uverbs0", 'c', 231, 193}}),
            "`/dev/infiniband/uverbs0` in linux.devices has device number 231:193, but on this node it has 231:192");
  any.inventory.hcas[2].uverbs = 40;
  EXPECT_EQ(with({{"/dev/x", 'c', 511, 8, 40}}), "mlx5_2") << "the snapshot does not have its number";
  any.inventory.hcas[2].uverbs_dev = "511:8";
  EXPECT_EQ(with({{"/dev/x", 'c', 511, 8, 40}}), "mlx5_2");
}

// A stale node, or one with another HCA's name, does not affect the other nodes.
TEST(Plan, BooksGrantedNodesByNumber) {
  PlanScene scene = requesting("mlx5_3");
  scene.request.granted_nodes = {{"/dev/x", 'c', 231, 192},
                                 {"/dev/infiniband/uverbs0", 'c', 231, 193},
                                 {"/dev/infiniband/uverbs9", 'c', 231, 194},
                                 {"/dev/infiniband/uverbs7", 'c', 231, 199}};
  std::string held;
  const auto plan = decide(scene);
  for (const PlannedHca& hca : plan->also_open)
    held += hca.name + " ";
  EXPECT_EQ(held, "mlx5_0 mlx5_1 mlx5_2 ");
  EXPECT_EQ(locked(scene), "mlx5_3 mlx5_0 mlx5_1 mlx5_2");
}

TEST(Plan, VariableNarrowsCount) {
  PlanScene scene = requesting("2");
  EXPECT_EQ(narrowed(scene, "index:3,index:9", "variable RDMA_VISIBLE_DEVICES"), "mlx5_3");
  EXPECT_EQ(hcas(scene, "mlx5_0,mlx5_3"), "mlx5_3");
  scene.request.selection = *parse_selection("9", "x");
  EXPECT_EQ(narrowed(scene, "index:0,index:1,index:2,index:3", "y"),
            "x: requests 9 HCAs, 4 are free");  // nothing was narrowed
}

TEST(Plan, RefusesHcasOfOtherOwners) {
  PlanScene scene = requesting("3");
  scene.request.mode = Mode::kExclusive;
  scene.holdings["mlx5_0"] = held_by("container web-1");
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_2 mlx5_3");
  scene.holdings["mlx5_2"].others = 2;
  EXPECT_EQ(hcas(scene),
            "annotation rdma-init.io/devices: requests 3 HCAs, 2 are free: mlx5_0 is held by container "
            "web-1, mlx5_2 is shared with 2 other users");
  EXPECT_EQ(hcas(scene, "mlx5_0"), "x: `mlx5_0` is held by container web-1");
  EXPECT_EQ(hcas(scene, "all"), "x: `mlx5_0` is held by container web-1");
  // An HCA of an exclusive owner cannot be shared either.
  for (const Mode mode : {Mode::kShared, Mode::kSharedMulti, Mode::kHca}) {
    scene.request.mode = mode;
    EXPECT_EQ(hcas(scene), "x: `mlx5_0` is held by container web-1") << to_string(mode);
  }
  scene.request.mode = Mode::kHca;
  EXPECT_EQ(hcas(scene, "mlx5_2"), "mlx5_2");
}

TEST(Plan, KeepsOwnHcasAndLimitsOfPools) {
  PlanScene scene = requesting("2");
  scene.request.mode = Mode::kExclusive;
  scene.holdings["mlx5_3"] = own();
  scene.inventory.hcas[3].ports[0].state = "1: DOWN";
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3");
  scene.config.pools = {{"p", {}, {Mode::kExclusive}, {{Mode::kExclusive, 0}}, std::nullopt}};
  EXPECT_EQ(hcas(scene, "mlx5_3"), "mlx5_3");
  PlanScene limited = requesting("mlx5_1");
  limited.config.pools = {{"p", {}, {Mode::kShared, Mode::kHca}, {{Mode::kShared, 2}}, std::nullopt}};
  limited.holdings["mlx5_1"].others = 1;
  EXPECT_EQ(hcas(limited), "mlx5_1");
  EXPECT_EQ(decide(limited)->hcas[0], (PlannedHca{"mlx5_1", Mode::kShared, 1, 2}));
  limited.holdings["mlx5_1"].others = 2;
  EXPECT_EQ(hcas(limited), "annotation rdma-init.io/devices: `mlx5_1` has 2 of 2 places in use in mode shared");
  limited.holdings["mlx5_1"].doubtful = "the grant `x`";
  EXPECT_EQ(
      hcas(limited),
      "annotation rdma-init.io/devices: `mlx5_1` has 2 of 2 places in use in mode shared, one of unknown state: the "
      "grant `x`");
  limited.holdings["mlx5_1"].doubtful.clear();
  EXPECT_EQ(hcas(limited, Mode::kHca), "mlx5_1");
  EXPECT_EQ(hcas(limited, Mode::kExclusive),
            "annotation rdma-init.io/devices: `mlx5_1`: pool `p` does not allow mode exclusive");
  EXPECT_EQ(decide(limited).error().hint, "request one of its modes: shared, hca");
}

TEST(Plan, LimitsEachSharedHcaOfAPoolWithLimits) {
  PlanScene scene = requesting("mlx5_0,mlx5_1,mlx5_1");
  scene.request.mode = Mode::kSharedMulti;
  Pool limited{"limited", {}, {Mode::kHca, Mode::kExclusive, Mode::kSharedMulti}, {}, std::nullopt};
  limited.selectors.if_names = {"rail1"};
  limited.rdma_limits.objects = 4096;
  scene.config.pools = {limited, {"other", {}, {Mode::kHca, Mode::kExclusive, Mode::kSharedMulti}, {}, std::nullopt}};
  const auto plan = must(decide(scene));
  EXPECT_EQ(plan.rdma_limits, (std::vector<PlannedRdmaLimit>{{"mlx5_1", {std::nullopt, 4096}}}));
  EXPECT_EQ(plan_json(plan)["rdma_limits"].dump(), R"([{"hca":"mlx5_1","hca_handles":null,"hca_objects":4096}])");
  EXPECT_TRUE(has_text(plan_text(plan), "rdma limit  mlx5_1  objects 4096, handles no limit\n"));
  scene.request.mode = Mode::kExclusive;
  EXPECT_TRUE(decide(scene)->rdma_limits.empty()) << "no other container uses it";
  EXPECT_FALSE(plan_json(*decide(scene)).contains("rdma_limits"));
}

TEST(Plan, OmitsRdmaLimitsWithoutController) {
  const TempDir node;
  const auto limited = [&]() {
    Plan plan;
    plan.rdma_limits = {{"mlx5_1", {2, 4096}}};
    const auto done = leave_out_rdma_limits(node.path(), plan);
    EXPECT_OK(done);
    return plan;
  };
  const auto release = [&](const char* text) {
    write_file(node / "proc/sys/kernel/osrelease", std::string(text) + "\n");
  };
  release("7.3.4+deb13-amd64");
  EXPECT_TRUE(limited().rdma_limits.empty());
  EXPECT_EQ(limited().warnings.size(), 1U);
  write_file(node / "sys/fs/cgroup/rdma/rdma.max", "");
  EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV1);
  EXPECT_EQ(limited().rdma_limits.size(), 1U);
  write_file(node / "sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  EXPECT_TRUE(limited().rdma_limits.empty());
  write_file(node / "sys/fs/cgroup/cgroup.controllers", "cpu memory rdma\n");
  EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV2);
  EXPECT_TRUE(limited().warnings.empty());
  for (const char* unsafe : {"7.2.9", "6.12.117+deb13-amd64", "6.30.0", "", "x", "7", "7.x"}) {
    release(unsafe);
    EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kUnsafe) << unsafe;
    EXPECT_TRUE(limited().rdma_limits.empty()) << unsafe;
    EXPECT_TRUE(has_text(limited().warnings.front(), "before Linux 7.3"));
  }
  for (const char* safe : {"7.3", "7.3-rc1", "7.10.0", "10.0.1"}) {
    release(safe);
    EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV2) << safe;
  }
}

TEST(Plan, CountsUnitsOfSharedMulti) {
  PlanScene scene = requesting("6");
  EXPECT_EQ(hcas(scene, Mode::kSharedMulti), "mlx5_0*2 mlx5_1*2 mlx5_2 mlx5_3");
  scene.config = with_network(Mode::kSharedMulti);
  scene.request.network = "fabric";
  EXPECT_EQ(netdevs(scene),
            "net1=shared-multi:rail0@0 net2=shared-multi:rail1@1 net3=shared-multi:rail2@2 "
            "net4=shared-multi:rail3@3 net5=shared-multi:rail0@0 net6=shared-multi:rail1@1");
  EXPECT_EQ(hcas(scene, "mlx5_1,mlx5_1,mlx5_0"), "mlx5_1*2 mlx5_0");
  // 8 slots, 4 used, 4 per child because the port also has RoCE v1: one more child fits.
  scene.inventory = rails(2, 8);
  EXPECT_EQ(
      hcas(scene),
      "x: requests 2 netdevs of `mlx5_1`, which has room for 1: it has 4 of 8 GID slots free, a child netdev needs 4");
  EXPECT_EQ(hcas(scene, "3"),
            "x: requests 3 HCAs, 2 are free: mlx5_0 has 4 of 8 GID slots free, a child netdev needs 4, "
            "mlx5_1 has 4 of 8 GID slots free, a child netdev needs 4");
  std::erase_if(scene.inventory.hcas[0].ports[0].gids, [](const auto& gid) { return !gid.is_v2(); });
  EXPECT_EQ(hcas(scene), "mlx5_0*2 mlx5_1");  // v2 only: two a child
  scene.inventory.hcas[1].ports[0].gids_complete = false;
  EXPECT_EQ(hcas(scene, "6"), "mlx5_0*3 mlx5_1*3");  // unknown bounds nothing
  scene.holdings["mlx5_0"] = own(3);
  scene.inventory.hcas[0].ports[0].gids = usual_gids("fe80::1", "10.0.0.1");
  scene.inventory.hcas[0].ports[0].gid_tbl_len = 4;
  EXPECT_EQ(hcas(scene, "mlx5_0,mlx5_0,mlx5_0"), "mlx5_0*3");  // a restart: its children are in the table already
}

TEST(Plan, RestrictsHcasToPools) {
  PlanScene scene = requesting("all");
  scene.inventory.hcas[0].vendor = "0x15B3";
  scene.inventory.hcas[1].vendor = "0x8086";
  scene.inventory.hcas[2].vendor = "0x15b3";
  scene.config.pools = {{"mlx", {{"15b3"}, {}, {}, {}, {}}, {Mode::kExclusive}, {}, std::nullopt},
                        {"rail1", {{}, {}, {}, {"rail1"}, {"ether"}}, {Mode::kHca}, {}, std::nullopt}};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_1 mlx5_2");
  EXPECT_EQ(decide(scene)->hcas[1].mode, Mode::kHca);
  EXPECT_EQ(hcas(scene, "mlx5_3"), "x: `mlx5_3` is in no pool");
  scene.request.selection = *parse_selection("3", "x");
  EXPECT_EQ(hcas(scene, Mode::kExclusive), "x: requests 3 HCAs, 2 are free");  // counts the pool that allows it
  PlanScene nodes = granted({3});
  nodes.config = scene.config;
  nodes.inventory = scene.inventory;
  EXPECT_EQ(hcas(nodes), "");
  EXPECT_EQ(decide(nodes)->nodes.size(), 0U);
  EXPECT_EQ(decide(nodes)->warnings, (Strings{"`mlx5_3` is in no pool: its device node is not changed"}));
}

// Narrowing removes no node of linux.devices: no other container may get an HCA exclusively that this one can open.
TEST(Plan, BooksGrantedNodesThatAreNarrowedAway) {
  PlanScene scene = granted({1, 2});
  scene.request.narrowed_by.push_back(*parse_selection("mlx5_2", "x"));
  EXPECT_EQ(hcas(scene), "mlx5_2");
  EXPECT_EQ(decide(scene)->also_open, (std::vector<PlannedHca>{{"mlx5_1", Mode::kHca, 1, std::nullopt, true}}));
  scene.holdings["mlx5_1"].exclusive_owner = "container web";
  EXPECT_EQ(hcas(scene),
            "`mlx5_1` is held exclusively by container web, but the container already has its device node");
  scene.request.selection.kind = HcaSelection::Kind::kNone;
  EXPECT_EQ(hcas(scene),
            "`mlx5_1` is held exclusively by container web, but the container already has its device node");
  scene.holdings.clear();
  EXPECT_EQ(hcas(scene), "");
  EXPECT_EQ(decide(scene)->also_open.size(), 2U);
  EXPECT_TRUE(decide(scene)->nodes.empty());
}

// An exclusive owner of a physical function also has its VFs, whatever the mode of other requests or grants.
TEST(Plan, BooksVfsWithExclusivePhysicalFunction) {
  for (const bool is_live : {false, true}) {
    PlanScene scene = requesting("mlx5_0");
    if (is_live) {
      scene.inventory.hcas[0].vfs = {"mlx5_2"};  // itself not checked
      scene.inventory.hcas.resize(2);
    } else {
      scene.inventory.hcas[2].physfn = scene.inventory.hcas[0].pci;
    }
    scene.holdings["mlx5_2"].others = 1;
    EXPECT_EQ(hcas(scene), "mlx5_0");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
    EXPECT_EQ(locked(scene), "mlx5_0");
    scene.request.mode = Mode::kExclusive;
    EXPECT_EQ(locked(scene), "mlx5_0 mlx5_2");
    EXPECT_EQ(hcas(scene),
              "annotation rdma-init.io/devices: `mlx5_0` has the VF mlx5_2, which is shared with 1 other user");
    scene.holdings["mlx5_2"] = held_by("container web");
    EXPECT_EQ(hcas(scene),
              "annotation rdma-init.io/devices: `mlx5_0` has the VF mlx5_2, which is held by container web");
    scene.holdings["mlx5_2"] = {};
    scene.inventory.hcas[0].unseen_vf = "virtfn3 with its HCA in another network namespace";
    EXPECT_EQ(hcas(scene),
              "annotation rdma-init.io/devices: `mlx5_0` has the VF virtfn3 with its HCA in another network namespace");
    scene.inventory.hcas[0].unseen_vf.reset();
    scene.holdings["mlx5_2"] = own();
    EXPECT_EQ(hcas(scene), "mlx5_0");
    EXPECT_EQ(decide(scene)->also_open, (std::vector<PlannedHca>{{"mlx5_2", Mode::kExclusive, 1, std::nullopt, true}}));
    if (is_live) continue;
    scene.request.selection = *parse_selection("mlx5_2,mlx5_0", "x");
    EXPECT_EQ(hcas(scene), "mlx5_2 mlx5_0");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
    // Also if its own pool has mode shared.
    PlanScene mixed = scene;
    mixed.request.mode.reset();
    mixed.holdings.clear();
    mixed.inventory.hcas[2].device_id = "0x101e";
    mixed.config.pools = {{"virtual", {}, {Mode::kShared}, {}, std::nullopt},
                          {"physical", {}, {Mode::kExclusive}, {}, std::nullopt}};
    mixed.config.pools[0].selectors.device_ids = {"101e"};
    EXPECT_EQ(must(decide(mixed)).hcas, (std::vector<PlannedHca>{{"mlx5_2", Mode::kExclusive, 1, std::nullopt},
                                                                 {"mlx5_0", Mode::kExclusive, 1, std::nullopt}}));
    PlanScene later = requesting("1");
    later.inventory = scene.inventory;
    later.request.mode = Mode::kExclusive;
    later.holdings["mlx5_2"] = own(0);
    later.holdings["mlx5_0"] = own();
    EXPECT_EQ(hcas(later), "mlx5_0") << "VFs that are only booked with it are not picked";
    later.inventory.hcas[2].pfs = {"mlx5_0"};
    later.holdings["mlx5_0"] = held_by("container web");
    later.holdings.erase("mlx5_2");
    later.request.mode = Mode::kShared;
    EXPECT_EQ(hcas(later, "mlx5_2"), "x: `mlx5_2` is a VF of mlx5_0, which is held by container web")
        << "a VF that was made later";
    later.holdings["mlx5_0"] = own();
    EXPECT_EQ(hcas(later), "mlx5_2");
    later.inventory.hcas[2].pfs.clear();
    later.inventory.hcas[2].is_pf_hidden = true;
    EXPECT_EQ(hcas(later), "mlx5_2") << "the PF is in the container's namespace";
    later.holdings.erase("mlx5_0");
    EXPECT_TRUE(has_text(hcas(later), "which is in another network namespace"));
    // A VF can be allocated while other containers share its PF.
    scene.request.selection = *parse_selection("mlx5_2", "x");
    scene.holdings.clear();
    scene.holdings["mlx5_0"].others = 1;
    EXPECT_EQ(hcas(scene), "mlx5_2");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
  }
}

TEST(Plan, OrdersRails) {
  Config config;
  fabric::Inventory inventory = rails(4);
  const auto order = [&] {
    const NodeMap node(inventory, config);
    Strings names;
    for (const NodeHca* hca : node.by_rail()) {
      EXPECT_EQ(hca->rail, names.size());
      names.push_back(hca->name());
    }
    return base::join(names, " ");
  };
  inventory.hcas[0].pci = "10000:01:00.0";
  inventory.hcas[2].pci.reset();
  config.rails = test_support::rails_of(R"(["mlx5_3", "gone"])");
  EXPECT_EQ(order(), "mlx5_3 mlx5_1 mlx5_0 mlx5_2");
  // HCAs without a pool come last, whatever their addresses.
  inventory = rails(4);
  config.rails.clear();
  config.pools = {{"p", {{}, {}, {}, {"rail1", "rail3"}, {}}, {}, {}, std::nullopt}};
  EXPECT_EQ(order(), "mlx5_1 mlx5_3 mlx5_0 mlx5_2");
}

TEST(Plan, HcasOfContainersKeepTheNumbersOfTheOthers) {
  Config config;
  fabric::Inventory inventory = rails(4);
  const auto numbers = [&] {
    Strings texts;
    const NodeMap node(inventory, config);
    for (const NodeHca* hca : node.by_rail())
      texts.push_back(fmt::format("{}={},{}", hca->name(), hca->rail, hca->number));
    return base::join(texts, " ");
  };
  const auto lose = [&](std::size_t at) {
    const fabric::Hca& hca = inventory.hcas.at(at);
    fabric::Hca& away = inventory.away.emplace_back();
    away.name = hca.name;
    away.pci = hca.pci;
    inventory.hcas.erase(inventory.hcas.begin() + static_cast<std::ptrdiff_t>(at));
  };
  lose(0);
  lose(1);  // mlx5_2
  EXPECT_EQ(numbers(), "mlx5_1=1,1 mlx5_3=3,3");
  config.rails = test_support::rails_of(R"(["mlx5_3", "mlx5_2", "gone", "mlx5_1"])");
  EXPECT_EQ(numbers(), "mlx5_3=0,3 mlx5_1=2,1") << "mlx5_2 has 1";
  config.rails = test_support::rails_of(R"(["mlx5_2", "pci:0000:99:00.0"])");
  EXPECT_EQ(numbers(), "mlx5_1=3,1 mlx5_3=4,3") << "mlx5_0 has 2, the first after the list";
  config.rails = test_support::rails_of(R"(["guid:0000:0000:0000:0009"])");
  EXPECT_EQ(numbers(), "mlx5_1=2,1 mlx5_3=4,3")
      << "uncertain: an HCA may be the one of the list, so check_rail() refuses";
  config.rails = test_support::rails_of(fmt::format(R"(["guid:{}"])", inventory.hcas[1].node_guid));
  EXPECT_EQ(numbers(), "mlx5_3=0,3 mlx5_1=2,1") << "the node shows the HCA of the list";
  EXPECT_EQ(NodeMap(inventory, config).away()[0].entry_unknown, "");
  config.rails.clear();
  config.pools = {{"p", {{}, {}, {}, {"rail3"}, {}}, {}, {}, std::nullopt}};
  EXPECT_EQ(numbers(), "mlx5_3=2,3 mlx5_1=3,1") << "an HCA that a container has is in a pool";
}

TEST(Plan, CountsHcasOfContainersOnlyWhereNumbersDependOnThem) {
  fabric::Inventory inventory = rails(2);
  Config config;
  Request request;
  request.selection = *parse_selection("mlx5_1", "x");
  EXPECT_FALSE(counts_all_hcas(request, config, inventory)) << "no network";
  request.network = "fabric";
  EXPECT_TRUE(counts_all_hcas(request, config, inventory));
  config.rails = test_support::rails_of(R"(["mlx5_0", "mlx5_1"])");
  EXPECT_TRUE(counts_all_hcas(request, config, inventory)) << "a requested HCA may follow the list";
  inventory.hcas[0].is_name_only = true;
  EXPECT_FALSE(counts_all_hcas(request, config, inventory)) << "the list has the requested HCA, and no name is missing";
  config.rails = test_support::rails_of(R"(["mlx5_2", "mlx5_1"])");
  EXPECT_TRUE(counts_all_hcas(request, config, inventory));
  request.network.reset();
  for (const char* selection : {"rail:1", "index:1"}) {
    request.selection = *parse_selection(selection, "x");
    EXPECT_TRUE(counts_all_hcas(request, config, inventory)) << selection;
  }
}

TEST(Plan, PlansNetdevsOfNetworks) {
  PlanScene scene = requesting("mlx5_3,mlx5_1");
  scene.request.network = "fabric";
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: config.json has no network `fabric`");
  scene.config = with_network(Mode::kShared);
  EXPECT_EQ(netdevs(scene), "net1=shared:rail3@3 net2=shared:rail1@1");
  scene.config.netdev_names = "rdma%d";
  EXPECT_EQ(netdevs(scene, Mode::kExclusive), "rdma1=exclusive:rail3@3 rdma2=exclusive:rail1@1");
  EXPECT_EQ(netdevs(scene, Mode::kHca), "");
  scene.request.mode.reset();
  scene.host_network = true;
  EXPECT_EQ(netdevs(scene), "");
  EXPECT_EQ(decide(scene)->warnings,
            Strings{"network `fabric`: the container is in the node's network namespace and gets only device nodes"});
  scene.host_network = false;
  scene.config.networks["fabric"].pool = "p";
  scene.config.pools = {{"p", {{}, {}, {}, {"rail1"}, {}}, {}, {}, std::nullopt}, {"q", {}, {}, {}, "fabric"}};
  EXPECT_EQ(netdevs(scene), "annotation rdma-init.io/devices: `mlx5_3` is in pool `q`, but the network uses pool `p`");
  scene.request.network.reset();  // the pool's own network
  EXPECT_EQ(netdevs(scene), "rdma1=shared:rail3@3");
  scene.request.network_of_pool = "annotation a";
  EXPECT_EQ(decide(scene)->no_rail, Strings{"mlx5_1"});
  scene.config.networks.clear();
  scene.config.pools.clear();
  EXPECT_EQ(decide(scene)->no_rail, (Strings{"mlx5_3", "mlx5_1"}));
  EXPECT_EQ(decide(scene)->warnings,
            Strings{"annotation a: `mlx5_3` gets no rail: /etc/rdma-init/config.json has no \"networks\"; add one, and "
                    "its name as \"network\" of the pool"});
  scene.request.mode = Mode::kHca;
  EXPECT_EQ(decide(scene)->warnings, Strings{});
}

// rdma-init needs a GID, and the kernel makes RoCE GIDs from addresses.
TEST(Plan, DoesNotRequireRailWithoutAddress) {
  PlanScene scene = requesting("all");
  scene.variables = true;
  scene.request.network = "fabric";
  scene.config = with_network(Mode::kExclusive);
  Network& network = scene.config.networks["fabric"];
  const auto required = [&] {
    const auto plan = decide(scene);
    if (!plan) return plan.error().message;
    if (plan->env.contains("RDMA_INIT_REQUIRE")) return plan->env.at("RDMA_INIT_REQUIRE");
    return base::join(plan->warnings, "; ");
  };
  const std::string none =
      "RDMA_INIT_REQUIRE is not set: no rail of a RoCE port has an address, neither from its network in config.json "
      "nor from a moved netdev";
  EXPECT_EQ(required(), "4") << "moved netdevs keep their addresses";
  scene.inventory.netdevs[2].addresses = test_support::netdev("", {"fe80::1"}).addresses;
  EXPECT_EQ(required(), "3");
  for (fabric::Netdev& netdev : scene.inventory.netdevs)
    netdev.addresses.clear();
  EXPECT_EQ(required(), none);
  network.ranges.resize(2);
  network.ranges[0].rail = 0;
  network.ranges[1].rail = 7;
  EXPECT_EQ(required(), "1");
  scene.inventory.netdevs[2].addresses = test_support::netdev("", {"10.9.0.1"}).addresses;
  EXPECT_EQ(required(), "2") << "a rail without a range keeps the netdev's address";
  network.mode = Mode::kShared;
  network.ranges[1].rail.reset();
  EXPECT_EQ(required(), "4");
  network.ranges.clear();
  EXPECT_EQ(required(), none);
  network.ipam = "{}";
  EXPECT_EQ(required(), "4");
  network.ipam.reset();
  network.child = "ipoib";
  for (fabric::Hca& hca : scene.inventory.hcas)
    hca.ports = {infiniband_port()};
  EXPECT_EQ(required(), "4") << "InfiniBand needs none";
}

TEST(Plan, FindsNetdevOfHca) {
  PlanScene scene = requesting("mlx5_0");
  scene.config = with_network(Mode::kShared);
  scene.request.network = "fabric";
  auto& netdev = scene.inventory.netdevs[1];
  netdev.master = "bond0";
  scene.inventory.netdevs.push_back(test_support::netdev("bond0", {}));
  EXPECT_EQ(netdevs(scene), "net1=shared:bond0@0");
  EXPECT_EQ(netdevs(scene, Mode::kExclusive), "`mlx5_0`: its netdev belongs to `bond0` and cannot move");
  netdev.master.reset();
  netdev.pci.reset();
  EXPECT_EQ(netdevs(scene), "`mlx5_0`: its netdev is not in the node's network namespace");
  scene.holdings["mlx5_0"] = own();  // where it went
  EXPECT_EQ(netdevs(scene), "");
  scene.holdings.clear();
  scene.inventory.hcas[0].ports[0].gids[0].ndev = base::Attr<std::string>("rail0");
  EXPECT_EQ(netdevs(scene), "net1=exclusive:rail0@0");
  scene.inventory.hcas[0].ports[0].netdev = "rail1";
  EXPECT_EQ(netdevs(scene), "net1=exclusive:rail1@0");
}

TEST(Plan, PlansIpoibChildren) {
  PlanScene scene = requesting("mlx5_0");
  scene.request.network = "fabric";
  scene.inventory.hcas[0].ports = {infiniband_port()};
  scene.config = with_network(Mode::kShared);
  EXPECT_EQ(netdevs(scene), "`mlx5_0`: its link layer is InfiniBand, which does not support macvlan");
  EXPECT_EQ(decide(scene).error().hint, "write \"child\": \"ipoib\" in network `fabric`");
  scene.config = with_network(Mode::kShared, "ipoib");
  EXPECT_EQ(netdevs(scene), "net1=shared:rail0@0");
  scene.request.selection = *parse_selection("mlx5_1", "x");
  EXPECT_EQ(netdevs(scene), "`mlx5_1`: its link layer is Ethernet, but ipoib requires InfiniBand");
}

TEST(Plan, FindsGpusOfContainer) {
  PlanScene scene = requesting("gpu");
  add_gpus(scene.inventory);
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia5"}), "mlx5_2");
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia7", "/dev/nvidia0", "/dev/nvidia1"}), "mlx5_3 mlx5_0");
  EXPECT_EQ(near_gpus(scene, {"/dev/dri/card0", "/dev/dri/renderD134"}), "mlx5_3");
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia8"}),
            "annotation rdma-init.io/devices: none of the node's 8 GPUs is `/dev/nvidia8`");
  // A live node reports the nodes of a GPU: the driver's numbers need not follow PCI addresses.
  (*scene.inventory.gpus)[0].nodes = {"nvidia8", "dri/card1"};
  EXPECT_EQ(hcas(scene), "mlx5_0");
  scene.request.gpu_hint = "2,3";
  EXPECT_EQ(near_gpus(scene, {}), "mlx5_1");
  for (const char* hint : {"all", "GPU-5", "", "none", "99"}) {
    scene.request.gpu_hint = hint;
    EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: no GPU of the container is known") << hint;
  }
  // Without PCI paths: HCAs of the same socket, and of these the free ones.
  for (fabric::Hca& hca : scene.inventory.hcas)
    hca.pci_path.reset();
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia8"}), "mlx5_0 mlx5_1");
  scene.holdings["mlx5_0"] = held_by("container a");
  EXPECT_EQ(hcas(scene), "mlx5_1");
  scene.holdings["mlx5_1"] = held_by("container b");
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: `mlx5_0` is held by container a");
}

std::string uuid_of_gpu(std::size_t number) {
  return fmt::format("GPU-00000000-0000-0000-0000-{:012x}", number);
}

// An image can set the variable. It must not get more by it than by its device nodes.
TEST(Plan, UuidsNarrowGpus) {
  PlanScene scene = requesting("gpu");
  add_gpus(scene.inventory);
  for (std::size_t i = 0; i < scene.inventory.gpus->size(); ++i)
    (*scene.inventory.gpus)[i].uuid = uuid_of_gpu(i);
  scene.request.gpu_uuids = {uuid_of_gpu(7), uuid_of_gpu(0), uuid_of_gpu(99)};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3") << "no nodes, as with NVIDIA's runtime";
  scene.request.gpu_hint = "2,3";
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3") << "indices do not count beside UUIDs";
  scene.request.gpu_hint.reset();
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia0", "/dev/nvidia2"}), "mlx5_0") << "UUIDs narrow the device nodes";
  scene.request.gpu_uuids = {uuid_of_gpu(7)};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_1") << "UUIDs of other GPUs do not narrow";
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia8"}),
            "annotation rdma-init.io/devices: none of the node's 8 GPUs is `/dev/nvidia8`");
  scene.request.gpu_uuids = {uuid_of_gpu(99)};
  EXPECT_EQ(near_gpus(scene, {}),
            "annotation rdma-init.io/devices: none of the node's 8 GPUs is `" + uuid_of_gpu(99) + "`");
  scene.request.selection = *parse_selection("2", "x");
  scene.request.gpu_uuids = {uuid_of_gpu(2), uuid_of_gpu(6)};
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_3") << "a count";
}

TEST(Plan, CountPrefersHcasNearGpus) {
  PlanScene scene = requesting("2");
  add_gpus(scene.inventory);
  EXPECT_EQ(near_gpus(scene, {"/dev/nvidia2", "/dev/nvidia6"}), "mlx5_1 mlx5_3");
  scene.holdings["mlx5_3"] = held_by("container a");
  EXPECT_EQ(hcas(scene, Mode::kExclusive), "mlx5_1 mlx5_2");  // its socket's other
  scene.request.selection = *parse_selection("1", "x");
  scene.request.granted_nodes = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
  EXPECT_EQ(hcas(scene), "mlx5_0");  // it has that node already
}

TEST(Plan, MountsLentLibrariesForPoolsThatLend) {
  PlanScene scene = requesting("all");
  scene.lendable.emplace(
      "mlx5", std::vector<fabric::LentFile>{{"libibverbs.so.1", "/usr/lib/libibverbs.so.1", "1.2.3.4.5", true},
                                            {"libnl-3.so.200", "/usr/lib/libnl-3.so.200", "1.3.3.4.5"}});
  EXPECT_EQ(decide(scene)->mounts.size(), 0U) << "no pool lends";
  Pool pool;
  pool.name = "a";
  pool.modes = {Mode::kHca};
  pool.lend_providers = true;
  scene.config.pools = {pool};
  auto plan = *decide(scene);
  EXPECT_EQ(plan.view,
            (std::vector<ViewEntry>{{"lib", "libibverbs.so.1", "", "1.2.3.4.5", "/usr/lib/libibverbs.so.1"},
                                    {"needed", "libnl-3.so.200", "", "1.3.3.4.5", "/usr/lib/libnl-3.so.200"}}));
  const auto mount = [&](const std::string& name) {
    return PlannedMount{"/run/rdma-init/" + name,
                        "/run/v/" + view_name(plan.view) + "/" + name,
                        "bind",
                        {"bind", "ro", "nosuid", "nodev"}};
  };
  EXPECT_EQ(plan.mounts, (std::vector<PlannedMount>{mount("lib"), mount("needed")}));
  // Libraries that cannot be lent do not keep the container from starting.
  scene.lendable.clear();
  scene.lendable.emplace("mlx5", base::Error{"cannot lend `libx`: it is not on the node", 0, "install it"});
  plan = *decide(scene);
  EXPECT_TRUE(plan.mounts.empty());
  EXPECT_EQ(plan.warnings.back(), "cannot lend `libx`: it is not on the node; remedy: install it");
}

TEST(Plan, MountsTheAdministratorsTopologyFile) {
  PlanScene scene = requesting("all");
  scene.variables = true;
  scene.topology = fabric::LentFile{"topology.xml", "/etc/vm.xml", "1.2.3.4.5"};
  auto plan = *decide(scene);
  EXPECT_EQ(plan.view, (std::vector<ViewEntry>{{"topology", "topology.xml", "", "1.2.3.4.5", "/etc/vm.xml"}}));
  EXPECT_EQ(plan.mounts, (std::vector<PlannedMount>{{"/run/rdma-init/topology",
                                                     "/run/v/" + view_name(plan.view) + "/topology",
                                                     "bind",
                                                     {"bind", "ro", "nosuid", "nodev", "noexec"}}}));
  EXPECT_EQ(plan.env["RDMA_INIT_SITE"], "NCCL_TOPO_FILE=/run/rdma-init/topology/topology.xml");
  Pool pool;
  pool.name = "a";
  pool.modes = {Mode::kHca};
  pool.env = {{"NCCL_TOPO_FILE", "/own.xml"}};
  scene.config.pools = {pool};
  EXPECT_EQ(decide(scene)->env["RDMA_INIT_SITE"], "NCCL_TOPO_FILE=/own.xml");
  scene.config.pools.clear();
  scene.view_mount = ViewMount::kLater;
  EXPECT_FALSE(decide(scene)->env.contains("RDMA_INIT_SITE")) << "the plan has no mount";
  // The container starts without a file that cannot be read.
  scene.view_mount = ViewMount::kBind;
  scene.topology = base::Error{"cannot lend `/etc/vm.xml`: no", 0, "make root its owner"};
  plan = *decide(scene);
  EXPECT_TRUE(plan.mounts.empty());
  EXPECT_FALSE(plan.env.contains("RDMA_INIT_SITE"));
  EXPECT_EQ(plan.warnings.back(), "cannot lend `/etc/vm.xml`: no; remedy: make root its owner");
}

TEST(Plan, MountsViewThatHidesOtherHcas) {
  PlanScene scene = requesting("all");
  EXPECT_EQ(decide(scene)->mounts.size(), 0U);  // nothing to hide
  scene.request.selection = *parse_selection("2", "x");
  EXPECT_EQ(decide(scene)->mounts.size(), 2U);
  scene.inventory.class_directories = {{"infiniband"}, {"infiniband_verbs", "6"}, {"infiniband_mad", "5"}};
  EXPECT_EQ(decide(scene)->mounts.size(), 3U);
  fabric::Hca& hca = scene.inventory.hcas[0];
  hca.class_link = "../../devices/a/infiniband/mlx5_0";
  hca.verbs_link = "../../devices/a/infiniband_verbs/uverbs0";
  hca.mad_nodes = {{"umad0", "231:0", 1, "../../devices/a/infiniband_mad/umad0"}, {"issm0", "231:64", 1, "x"}};
  const auto plan = *decide(scene);
  EXPECT_EQ(plan.view, (std::vector<ViewEntry>{{"infiniband", "", ""},
                                               {"infiniband", "mlx5_0", *hca.class_link},
                                               {"infiniband_verbs", "", ""},
                                               {"infiniband_verbs", "abi_version", "", "6\n"},
                                               {"infiniband_verbs", "uverbs0", *hca.verbs_link},
                                               {"infiniband_mad", "", ""},
                                               {"infiniband_mad", "abi_version", "", "5\n"}}));
  // The entries decide the name of the view, in any order.
  EXPECT_EQ(view_name(plan.view), "set-3304032ca10b18d1b35d2e9e94f12d74");
  EXPECT_EQ(view_name({plan.view.rbegin(), plan.view.rend()}), view_name(plan.view));
  PlannedMount mount{"/sys/class/infiniband_verbs",
                     "/run/v/" + view_name(plan.view) + "/infiniband_verbs",
                     "bind",
                     {"bind", "ro", "nosuid", "nodev", "noexec"}};
  EXPECT_EQ(plan.mounts[1], mount);
  scene.view_mount = ViewMount::kOverlay;
  mount.type = "overlay";
  mount.options = {"lowerdir=" + mount.source + ":/run/v/none", "ro", "nosuid", "nodev", "noexec"};
  EXPECT_EQ(decide(scene)->mounts[1], mount);
  scene.config.nodes.umad = true;
  EXPECT_NE(view_name(decide(scene)->view), view_name(plan.view));
  EXPECT_EQ(decide(scene)->view.back(), (ViewEntry{"infiniband_mad", "umad0", "../../devices/a/infiniband_mad/umad0"}));
  scene.inventory.netns_mode = fabric::NetnsMode::kExclusive;
  EXPECT_EQ(decide(scene)->mounts.size() + decide(scene)->view.size(), 0U);
  scene.inventory.netns_mode = fabric::NetnsMode::kShared;
  scene.config.sysfs_view = false;
  EXPECT_EQ(decide(scene)->mounts.size() + decide(scene)->view.size(), 0U);
  // An inventory with only names does not prove that there are no other HCAs.
  PlanScene named = requesting("mlx5_0");
  named.inventory = rails(1);
  EXPECT_EQ(decide(named)->mounts.size(), 2U);
}

// rdma-init may use only GIDs of these addresses.
TEST(Plan, ExportsAddressesOfNodeWithoutRail) {
  PlanScene scene = requesting("mlx5_0,mlx5_1");
  fabric::Inventory& inventory = scene.inventory;
  scene.variables = true;
  for (const std::size_t i : {0U, 1U, 2U})
    inventory.hcas[i].ports[0].netdev = fmt::format("rail{}", i);
  inventory.netdevs[2].addresses.clear();
  inventory.netdevs[2].master = "bond0";
  inventory.netdevs.push_back(test_support::netdev("bond0", {"fe80::1", "10.7.0.1", "fd00::7"}));
  const auto reported = [&](const std::function<void(PlanScene&)>& change) {
    PlanScene changed = scene;
    change(changed);
    return decide(changed)->env["RDMA_INIT_NODE_ADDRESSES"];
  };
  EXPECT_EQ(reported([](PlanScene&) {}), "mlx5_0:1=10.1.0.1,mlx5_1:1=10.7.0.1,mlx5_1:1=fd00::7");
  EXPECT_EQ(reported([](PlanScene& other) { other.host_network = true; }), "");
  EXPECT_EQ(reported([](PlanScene& other) { other.inventory.netns_mode = fabric::NetnsMode::kExclusive; }), "");
  EXPECT_EQ(reported([](PlanScene& other) { other.variables = false; }), "");
  EXPECT_EQ(reported([](PlanScene& other) { other.inventory.hcas[0].ports[0].state = "1: DOWN"; }),
            "mlx5_1:1=10.7.0.1,mlx5_1:1=fd00::7");
}

TEST(Plan, LocksItsCandidates) {
  EXPECT_EQ(locked(requesting("1")), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
  EXPECT_EQ(locked(requesting("mlx5_2,mlx5_2")), "mlx5_2");
  EXPECT_EQ(locked(granted({3})), "mlx5_3");
  EXPECT_EQ(locked(requesting("none")), "");
  EXPECT_EQ(locked(requesting("mlx5_9")), "");
  PlanScene scene = requesting("gpu");
  add_gpus(scene.inventory);
  scene.request.gpu_nodes = {"/dev/nvidia0"};
  EXPECT_EQ(locked(scene), "mlx5_0");
}

PlannedNode node(const std::string& path, unsigned minor, unsigned major = 231) {
  return {.path = "/dev/infiniband/" + path, .major = major, .minor = minor};
}

TEST(Renumber, UpdatesNodesOfMovedDevices) {
  // mlx5_0 and mlx5_1 with uverbs0 and uverbs1; rxe0 with uverbs10.
  fabric::Inventory inventory = rails(2);
  inventory.hcas.push_back(test_support::hca("rxe0", 10, {}));
  fabric::Inventory without_node = inventory;
  without_node.hcas[1].uverbs.reset();
  const PlannedNode one = node("uverbs1", 193);
  const PlannedNode ten = node("uverbs10", 202);
  const std::vector<NewNode> swapped = {{"mlx5_1", 10, "231:202"}, {"rxe0", 1, "231:193"}};
  const struct {
    const char* name;
    const fabric::Inventory& from;
    std::vector<NewNode> changes;
    PlannedNode first;
    PlannedNode second;
  } cases[] = {
      {"another number", inventory, {{"mlx5_1", 7, "231:199"}}, node("uverbs7", 199), ten},
      {"a dynamic number of uverbs32 and up", inventory, {{"rxe0", 32, "510:0"}}, one, node("uverbs32", 0, 510)},
      {"another device number", inventory, {{"mlx5_1", 1, "509:3"}}, node("uverbs1", 3, 509), ten},
      {"two that swapped their numbers", inventory, swapped, node("uverbs10", 202), node("uverbs1", 193)},
      {"no such HCA", inventory, {{"mlx5_9", 7, "231:199"}}, one, ten},
      {"not of the plan", inventory, {{"mlx5_0", 7, "231:199"}}, one, ten},
      {"half a device number", inventory, {{"mlx5_1", 7, "231"}}, one, ten},
      {"no device number", inventory, {{"mlx5_1", 7, ""}}, one, ten},
      {"an HCA without a node", without_node, {{"mlx5_1", 7, "231:199"}}, one, ten}};
  for (const auto& row : cases) {
    SCOPED_TRACE(row.name);
    Plan plan;
    plan.nodes = {one, ten, node("rdma_cm", 58)};
    renumber(row.from, row.changes, plan);
    EXPECT_EQ(plan.nodes, (std::vector<PlannedNode>{row.first, row.second, node("rdma_cm", 58)}));
  }
}

class FindUverbs : public testing::Test {
 protected:
  void device(const std::string& name, const char* hca, const char* dev) {
    write_file(temp_ / ("class/infiniband_verbs/" + name + "/ibdev"), std::string(hca) + "\n");
    if (dev) write_file(temp_ / ("class/infiniband_verbs/" + name + "/dev"), std::string(dev) + "\n");
  }
  // Returns "uverbsN MAJ:MIN".
  std::string found(const std::string& hca) {
    const base::UniqueFd sys(::open(temp_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto node = find_uverbs(sys.get(), hca);
    if (!node) return "none";
    EXPECT_EQ(node->hca, hca);
    return fmt::format("uverbs{} {}", node->uverbs, node->dev);
  }
  TempDir temp_;
};

TEST_F(FindUverbs, FindsNodeByNameOfDevice) {
  EXPECT_EQ(found("mlx5_0"), "none") << "no RDMA at all";
  device("uverbs0", "mlx5_1", "231:192");
  device("uverbs12", "mlx5_0", "231:204");
  device("uverbs40", "mlx5_10", "510:8");
  device("uverbsx", "mlx5_2", "231:9");
  device("other3", "mlx5_3", "231:9");
  device("uverbs5", "mlx5_5", nullptr);
  write_file(temp_ / "class/infiniband_verbs/abi_version", "6\n");
  EXPECT_EQ(found("mlx5_0"), "uverbs12 231:204");
  EXPECT_EQ(found("mlx5_1"), "uverbs0 231:192");
  EXPECT_EQ(found("mlx5_10"), "uverbs40 510:8");
  for (const char* hca : {"mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", ""})
    EXPECT_EQ(found(hca), "none") << hca;
}

TEST_F(FindUverbs, ReturnsNothingWithoutSysfs) {
  EXPECT_EQ(find_uverbs(-1, "mlx5_0").has_value(), false);
}

}  // namespace
}  // namespace hook
