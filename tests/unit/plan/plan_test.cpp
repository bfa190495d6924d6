// Which HCAs a container gets, what follows from that, and what is refused.
#include "hook/plan/plan.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "fabric/text.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/base/json/json.hpp"
#include "hook/plan/match.hpp"
#include "hook/request/parsers.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using test_support::rails;

// A decision to be made: rails(4), no configuration, nobody holds anything.
struct PlanScene {
  fabric::Inventory inventory = rails(4);
  Request request;
  Config config;
  Holdings holdings;
  bool host_network = false;
  ViewMount view_mount = ViewMount::kBind;
  bool variables = false;
};

PlanScene asking(std::string_view wish) {
  PlanScene scene;
  scene.request.wish = *parse_wish(wish, "annotation rdma-init.io/devices");
  return scene;
}

// The given nodes are the request.
PlanScene given(std::initializer_list<unsigned> numbers) {
  PlanScene scene;
  scene.request.wish.kind = Wish::Kind::kAll;
  scene.request.wish.source = "/dev/infiniband/uverbs* of the container";
  scene.request.given_is_the_grant = true;
  for (const unsigned number : numbers)
    scene.request.given.push_back({fmt::format("/dev/infiniband/uverbs{}", number), 'c', 231, 192 + number});
  return scene;
}

fabric::Result<Plan> decide(const PlanScene& scene) {
  const Candidates among(scene.inventory, scene.request, scene.config);
  return make_plan({among, scene.holdings, "/run/v", scene.host_network, scene.view_mount, scene.variables});
}

// "mlx5_0 mlx5_1*2", or the error.
std::string hcas(const PlanScene& scene) {
  const auto plan = decide(scene);
  if (!plan) return plan.error().message;
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan->hcas)
    names.push_back(hca.units > 1 ? fmt::format("{}*{}", hca.name, hca.units) : hca.name);
  return fabric::join(names, " ");
}

std::string netdevs(const PlanScene& scene) {
  const auto plan = decide(scene);
  if (!plan) return plan.error().message;
  std::vector<std::string> texts;
  for (const PlannedNetdev& netdev : plan->netdevs)
    texts.push_back(fmt::format("{}={}:{}@{}", netdev.name, to_string(netdev.mode), netdev.host, netdev.rail));
  return fabric::join(texts, " ");
}

Holding held_by(std::string who) {
  Holding holding;
  holding.exclusive_holder = std::move(who);
  holding.others = 1;
  return holding;
}

Holding own(unsigned units = 1) {
  Holding holding;
  holding.own = true;
  holding.own_units = units;
  return holding;
}

Config with_network(Mode mode, std::string child = "macvlan") {
  Config config;
  config.networks["fabric"] = {"fabric", mode, std::move(child), std::nullopt};
  return config;
}

// Two GPUs a switch, two switches a socket; mlx5_I shares its switch with GPUs 2I and 2I+1.
void add_gpus(fabric::Inventory& inventory) {
  std::vector<fabric::Gpu> gpus;
  for (unsigned i = 0; i < 8; ++i) {
    fabric::Gpu gpu;
    gpu.pci = fmt::format("0000:{:02x}:00.0", 0x80 + i);
    gpu.numa_node = static_cast<int>(i / 4);
    gpu.pci_path = {{fmt::format("0000:{:02x}:01.0", i / 4), fmt::format("0000:{:02x}:00.0", 0x40 + i / 2)}};
    gpus.push_back(gpu);
  }
  inventory.gpus = gpus;
  for (unsigned i = 0; i < inventory.hcas.size(); ++i) {
    inventory.hcas[i].numa_node = static_cast<int>(i / 2);
    inventory.hcas[i].pci_path = {{fmt::format("0000:{:02x}:01.0", i / 2), fmt::format("0000:{:02x}:00.0", 0x40 + i)}};
  }
}

TEST(Plan, wishes) {
  struct Row {
    const char* wish;
    const char* expected;
  };
  const Row rows[] = {
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
      {"5", "annotation rdma-init.io/devices: asks for 5 HCAs, 4 are free"},
      {"mlx5_9", "annotation rdma-init.io/devices: no HCA is `mlx5_9`"},
      {"mlx5_1:2", "annotation rdma-init.io/devices: no HCA is `mlx5_1:2`"},
      {"netdev:eth7", "annotation rdma-init.io/devices: no HCA is `netdev:eth7`"},
      {"rail:4", "annotation rdma-init.io/devices: no HCA is `rail:4`"},
      {"index:9", "annotation rdma-init.io/devices: no HCA is `index:9`"},
      {"^mlx5_*", "annotation rdma-init.io/devices: the node has no HCA that containers may have"},
      {"gpu", "annotation rdma-init.io/devices: no GPU of the container is known"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(hcas(asking(row.wish)), row.expected) << row.wish;
  EXPECT_EQ(decide(asking("mlx5_9")).error().hint, "the node has: mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  EXPECT_EQ(decide(asking("5")).error().hint, "containers may have 4: mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  PlanScene many = asking("mlx5_99");
  many.inventory = rails(12);
  EXPECT_EQ(decide(many).error().hint,
            "the node has: mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_7 and 4 more");
}

TEST(Plan, noHcaAtAll) {
  PlanScene scene = asking("all");
  scene.inventory = {};
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: the node has no HCA that containers may have");
  EXPECT_EQ(decide(scene).error().hint, "load the RDMA driver of its HCAs");
}

TEST(Plan, whatFollows) {
  PlanScene scene = asking("mlx5_2");
  scene.host_network = true;
  scene.variables = true;
  const auto plan = decide(scene);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan_json(*plan).dump(),
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
  EXPECT_EQ(plan_text(*plan),
            "HCA         mlx5_2  hca\n"
            "node        /dev/infiniband/uverbs2  c 231:194  0666\n"
            "node        /dev/infiniband/rdma_cm  c 10:?  0666\n"
            "memlock     unlimited\n"
            "capability  CAP_IPC_LOCK\n"
            "env         RDMA_INIT_REQUIRE=1\n"
            "mount       /sys/class/infiniband  from /run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband\n"
            "mount       /sys/class/infiniband_verbs  from "
            "/run/v/set-8abd172978f489ed71d1a6bfdac81315/infiniband_verbs\n");
}

TEST(Plan, nodes) {
  PlanScene scene = asking("mlx5_0");
  fabric::Hca& hca = scene.inventory.hcas[0];
  hca.mad_nodes = {{"umad0", "231:0", 1, "../u"}, {"issm0", "231:64", 1, "../i"}};
  hca.uverbs = 40;
  hca.uverbs_dev = "511:8";
  scene.inventory.rdma_cm_dev = "10:58";
  const auto paths = [&] {
    const auto plan = decide(scene);
    std::vector<std::string> texts;
    for (const PlannedNode& node : plan->nodes) {
      texts.push_back(fmt::format("{} {}:{} {:o} {}:{}", node.path.substr(16), node.major.value_or(0),
                                  node.minor.value_or(0), node.mode, node.uid, node.gid));
    }
    return fabric::join(texts, ", ");
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
  // Beyond the fixed range and unknown: null, never a guess.
  hca.uverbs_dev.reset();
  EXPECT_EQ(decide(scene)->nodes[0].major, std::nullopt);
  scene.config.nodes.rdma_cm = true;
  scene.inventory.rdma_cm = false;
  EXPECT_EQ(decide(scene)->nodes.size(), 2U);
}

TEST(Plan, withoutNodeOrLink) {
  PlanScene scene = asking("all");
  scene.inventory.hcas[1].uverbs.reset();
  scene.inventory.hcas[2].ports[0].state = "1: DOWN";
  scene.host_network = true;
  scene.variables = true;
  const auto plan = decide(scene);
  ASSERT_TRUE(plan);
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_2 mlx5_3");
  EXPECT_EQ(plan->warnings,
            (std::vector<std::string>{"`mlx5_1` is left out: it has no uverbs node", "`mlx5_2` has no ACTIVE port"}));
  EXPECT_EQ(plan->env.at("RDMA_INIT_REQUIRE"), "2");
  scene.request.wish = *parse_wish("2", "x");
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3");  // an ACTIVE port is better than a lower number
  scene.request.wish = *parse_wish("mlx5_1", "x");
  EXPECT_EQ(hcas(scene), "x: `mlx5_1` has no uverbs node");
  EXPECT_EQ(decide(scene).error().hint, "load ib_uverbs: modprobe ib_uverbs");
  scene.request.wish = *parse_wish("mlx5_2", "x");
  EXPECT_FALSE(decide(scene)->env.contains("RDMA_INIT_REQUIRE"));
}

TEST(Plan, givenNodes) {
  PlanScene scene = given({3, 1});
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_3");
  scene.request.order = {"0000:13:00.0", "0000:10:00.0"};
  EXPECT_EQ(hcas(scene), "mlx5_3 mlx5_1");  // names and orders, never adds
  scene.request.narrowed_by = {*parse_wish("mlx5_1,mlx5_0", "annotation a")};
  EXPECT_EQ(hcas(scene), "mlx5_1");
  scene.request.narrowed_by = {*parse_wish("mlx5_0", "annotation a")};
  EXPECT_EQ(hcas(scene), "annotation a: leaves none of the HCAs that the container may have");
  scene.request.narrowed_by = {*parse_wish("1", "annotation a")};
  EXPECT_EQ(hcas(scene), "mlx5_3");
  scene.request.narrowed_by = {*parse_wish("3", "annotation a")};
  EXPECT_EQ(hcas(scene), "mlx5_3 mlx5_1");
  EXPECT_EQ(decide(scene)->warnings,
            std::vector<std::string>{"annotation a asks for 3 HCAs, but may only narrow the 2 of "
                                     "/dev/infiniband/uverbs* of the container"});
  const PlanScene unknown = given({7});
  EXPECT_EQ(hcas(unknown), "");
  ASSERT_EQ(decide(unknown)->warnings.size(), 1U);
  EXPECT_TRUE(decide(unknown)->warnings[0].starts_with(
      "`/dev/infiniband/uverbs7` in linux.devices belongs to no HCA of this node and is left as it is"));
  EXPECT_EQ(hcas(given({7, 3})), "mlx5_3") << "says nothing of the others";
  PlanScene other = given({0});
  other.inventory.hcas[0].uverbs_dev = "231:193";
  EXPECT_EQ(hcas(other), "`/dev/infiniband/uverbs0` in linux.devices is 231:192, on this node it is 231:193");
}

TEST(Plan, givenNodesUnderAnyPath) {
  PlanScene scene = given({});
  const auto with = [&](std::vector<SpecDevice> devices) {
    scene.request.given = std::move(devices);
    return hcas(scene);
  };
  const SpecDevice foreign{"/dev/infiniband/../infiniband/uverbs1", 'c', 231, 193};
  EXPECT_EQ(with({foreign}), "mlx5_1");
  EXPECT_EQ(with({foreign, {"/dev/infiniband/uverbs1", 'c', 231, 193}}), "mlx5_1");
  EXPECT_EQ(with({{"/dev/\n", 'c', 231, 200}}), "");
  EXPECT_TRUE(decide(scene)->warnings[0].starts_with("`/dev/?` in linux.devices belongs to no HCA of this node"));
  EXPECT_EQ(with({{"/dev/infiniband/uverbs0", 'c', 231, 193}}),
            "`/dev/infiniband/uverbs0` in linux.devices is 231:193, on this node it is 231:192");
  scene.inventory.hcas[2].uverbs = 40;
  EXPECT_EQ(with({{"/dev/x", 'c', 511, 8, 40}}), "mlx5_2") << "the snapshot does not say its number";
  scene.inventory.hcas[2].uverbs_dev = "511:8";
  EXPECT_EQ(with({{"/dev/x", 'c', 511, 8, 40}}), "mlx5_2");
}

// One that is stale, or under another's name, says nothing of the others.
TEST(Plan, givenNodesAreHeldWhateverTheirNames) {
  PlanScene scene = asking("mlx5_3");
  scene.request.given = {{"/dev/x", 'c', 231, 192},
                         {"/dev/infiniband/uverbs0", 'c', 231, 193},
                         {"/dev/infiniband/uverbs9", 'c', 231, 194},
                         {"/dev/infiniband/uverbs7", 'c', 231, 199}};
  std::vector<std::string> held;
  const auto plan = decide(scene);
  for (const PlannedHca& hca : plan->also_open)
    held.push_back(hca.name);
  EXPECT_EQ(fabric::join(held, " "), "mlx5_0 mlx5_1 mlx5_2");
  EXPECT_EQ(fabric::join(Candidates(scene.inventory, scene.request, scene.config).names(), " "),
            "mlx5_3 mlx5_0 mlx5_1 mlx5_2");
}

TEST(Plan, variablesNarrowACount) {
  PlanScene scene = asking("2");
  scene.request.narrowed_by = {*parse_wish("index:3,index:9", "variable RDMA_VISIBLE_DEVICES")};
  EXPECT_EQ(hcas(scene), "mlx5_3");
  scene.request.wish = *parse_wish("mlx5_0,mlx5_3", "x");
  EXPECT_EQ(hcas(scene), "mlx5_3");
  scene.request.wish = *parse_wish("9", "x");
  scene.request.narrowed_by = {*parse_wish("index:0,index:1,index:2,index:3", "y")};
  EXPECT_EQ(hcas(scene), "x: asks for 9 HCAs, 4 are free");  // nothing was narrowed
}

TEST(Plan, holders) {
  PlanScene scene = asking("3");
  scene.request.mode = Mode::kExclusive;
  scene.holdings["mlx5_0"] = held_by("container web-1");
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_2 mlx5_3");
  scene.holdings["mlx5_2"].others = 2;
  EXPECT_EQ(hcas(scene),
            "annotation rdma-init.io/devices: asks for 3 HCAs, 2 are free: mlx5_0 is held by container "
            "web-1, mlx5_2 is shared by 2 others");
  scene.request.wish = *parse_wish("mlx5_0", "x");
  EXPECT_EQ(hcas(scene), "x: `mlx5_0` is held by container web-1");
  scene.request.wish = *parse_wish("all", "x");
  EXPECT_EQ(hcas(scene), "x: `mlx5_0` is held by container web-1");
  // Nor may anybody share what one has alone.
  for (const Mode mode : {Mode::kShared, Mode::kSharedMulti, Mode::kHca}) {
    scene.request.mode = mode;
    EXPECT_EQ(hcas(scene), "x: `mlx5_0` is held by container web-1") << to_string(mode);
  }
  scene.request.mode = Mode::kHca;
  scene.request.wish = *parse_wish("mlx5_2", "x");
  EXPECT_EQ(hcas(scene), "mlx5_2");
}

TEST(Plan, whatIsOnesOwnStays) {
  PlanScene scene = asking("2");
  scene.request.mode = Mode::kExclusive;
  scene.holdings["mlx5_3"] = own();
  scene.inventory.hcas[3].ports[0].state = "1: DOWN";
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3");
  scene.config.pools = {{"p", {}, {Mode::kExclusive}, {{Mode::kExclusive, 0}}, std::nullopt}};
  scene.request.wish = *parse_wish("mlx5_3", "x");
  EXPECT_EQ(hcas(scene), "mlx5_3");
}

TEST(Plan, limits) {
  PlanScene scene = asking("mlx5_1");
  scene.config.pools = {{"p", {}, {Mode::kShared, Mode::kHca}, {{Mode::kShared, 2}}, std::nullopt}};
  scene.holdings["mlx5_1"].others = 1;
  EXPECT_EQ(hcas(scene), "mlx5_1");
  EXPECT_EQ(decide(scene)->hcas[0], (PlannedHca{"mlx5_1", Mode::kShared, 1, 2}));
  scene.holdings["mlx5_1"].others = 2;
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: `mlx5_1` has 2 of 2 places taken in shared");
  scene.holdings["mlx5_1"].doubtful = "the grant `x`";
  EXPECT_EQ(hcas(scene),
            "annotation rdma-init.io/devices: `mlx5_1` has 2 of 2 places taken in shared, one by the grant `x`");
  scene.holdings["mlx5_1"].doubtful.clear();
  scene.request.mode = Mode::kHca;
  EXPECT_EQ(hcas(scene), "mlx5_1");
  scene.request.mode = Mode::kExclusive;
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: `mlx5_1`: pool `p` does not allow exclusive");
  EXPECT_EQ(decide(scene).error().hint, "it allows shared, hca");
}

TEST(Plan, LimitsEachSharedHcaOfAPoolWithLimits) {
  PlanScene scene = asking("mlx5_0,mlx5_1,mlx5_1");
  scene.request.mode = Mode::kSharedMulti;
  Pool limited{"limited", {}, {Mode::kHca, Mode::kExclusive, Mode::kSharedMulti}, {}, std::nullopt};
  limited.selectors.if_names = {"rail1"};
  limited.rdma_limits.objects = 4096;
  scene.config.pools = {limited, {"other", {}, {Mode::kHca, Mode::kExclusive, Mode::kSharedMulti}, {}, std::nullopt}};
  const auto plan = decide(scene);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->rdma_limits, (std::vector<PlannedRdmaLimit>{{"mlx5_1", {std::nullopt, 4096}}}));
  EXPECT_EQ(plan_json(*plan)["rdma_limits"].dump(), R"([{"hca":"mlx5_1","hca_handles":null,"hca_objects":4096}])");
  EXPECT_NE(plan_text(*plan).find("rdma limit  mlx5_1  objects 4096, handles no limit\n"), std::string::npos);
  scene.request.mode = Mode::kExclusive;
  EXPECT_TRUE(decide(scene)->rdma_limits.empty()) << "nobody shares it";
  EXPECT_FALSE(plan_json(*decide(scene)).contains("rdma_limits"));
}

TEST(Plan, LeavesOutRdmaLimitsWithoutController) {
  const test_support::TempDir node;
  const auto limited = [&]() {
    Plan plan;
    plan.rdma_limits = {{"mlx5_1", {2, 4096}}};
    const auto done = leave_out_rdma_limits(node.path(), plan);
    EXPECT_TRUE(done) << done.error().message;
    return plan;
  };
  const auto release = [&](const char* text) {
    test_support::write_file(node / "proc/sys/kernel/osrelease", std::string(text) + "\n");
  };
  release("7.3.4+deb13-amd64");
  EXPECT_TRUE(limited().rdma_limits.empty());
  EXPECT_EQ(limited().warnings.size(), 1U);
  test_support::write_file(node / "sys/fs/cgroup/rdma/rdma.max", "");
  EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV1);
  EXPECT_EQ(limited().rdma_limits.size(), 1U);
  test_support::write_file(node / "sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  EXPECT_TRUE(limited().rdma_limits.empty());
  test_support::write_file(node / "sys/fs/cgroup/cgroup.controllers", "cpu memory rdma\n");
  EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV2);
  EXPECT_TRUE(limited().warnings.empty());
  for (const char* unsafe : {"7.2.9", "6.12.117+deb13-amd64", "6.30.0", "", "x", "7", "7.x"}) {
    release(unsafe);
    EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kUnsafe) << unsafe;
    EXPECT_TRUE(limited().rdma_limits.empty()) << unsafe;
    EXPECT_NE(limited().warnings.front().find("before Linux 7.3"), std::string::npos);
  }
  for (const char* safe : {"7.3", "7.3-rc1", "7.10.0", "10.0.1"}) {
    release(safe);
    EXPECT_EQ(*rdma_controller(node.path()), RdmaController::kV2) << safe;
  }
}

TEST(Plan, sharedMultiCountsUnits) {
  PlanScene scene = asking("6");
  scene.request.mode = Mode::kSharedMulti;
  EXPECT_EQ(hcas(scene), "mlx5_0*2 mlx5_1*2 mlx5_2 mlx5_3");
  scene.config = with_network(Mode::kSharedMulti);
  scene.request.network = "fabric";
  EXPECT_EQ(netdevs(scene),
            "net1=shared-multi:rail0@0 net2=shared-multi:rail1@1 net3=shared-multi:rail2@2 "
            "net4=shared-multi:rail3@3 net5=shared-multi:rail0@0 net6=shared-multi:rail1@1");
  scene.request.wish = *parse_wish("mlx5_1,mlx5_1,mlx5_0", "x");
  EXPECT_EQ(hcas(scene), "mlx5_1*2 mlx5_0");
  // 8 slots, 4 of them used, 4 a child because the port has RoCE v1 as well: one child more.
  scene.inventory = rails(2, 8);
  EXPECT_EQ(
      hcas(scene),
      "x: asks for 2 netdevs of `mlx5_1`, which has room for 1: it has 4 of 8 GID slots free, a child netdev takes 4");
  scene.request.wish = *parse_wish("3", "x");
  EXPECT_EQ(hcas(scene),
            "x: asks for 3 HCAs, 2 are free: mlx5_0 has 4 of 8 GID slots free, a child netdev takes 4, "
            "mlx5_1 has 4 of 8 GID slots free, a child netdev takes 4");
  std::erase_if(scene.inventory.hcas[0].ports[0].gids, [](const auto& gid) { return !gid.is_v2(); });
  EXPECT_EQ(hcas(scene), "mlx5_0*2 mlx5_1");  // v2 only: two a child
  scene.inventory.hcas[1].ports[0].gids_complete = false;
  scene.request.wish = *parse_wish("6", "x");
  EXPECT_EQ(hcas(scene), "mlx5_0*3 mlx5_1*3");  // unknown bounds nothing
  scene.holdings["mlx5_0"] = own(3);
  scene.inventory.hcas[0].ports[0].gids = test_support::usual_gids("fe80::1", "10.0.0.1");
  scene.inventory.hcas[0].ports[0].gid_tbl_len = 4;
  scene.request.wish = *parse_wish("mlx5_0,mlx5_0,mlx5_0", "x");
  EXPECT_EQ(hcas(scene), "mlx5_0*3");  // a restart: its children are in the table already
}

TEST(Plan, pools) {
  PlanScene scene = asking("all");
  scene.inventory.hcas[0].vendor = "0x15B3";
  scene.inventory.hcas[1].vendor = "0x8086";
  scene.inventory.hcas[2].vendor = "0x15b3";
  scene.config.pools = {{"mlx", {{"15b3"}, {}, {}, {}, {}}, {Mode::kExclusive}, {}, std::nullopt},
                        {"rail1", {{}, {}, {}, {"rail1"}, {"ether"}}, {Mode::kHca}, {}, std::nullopt}};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_1 mlx5_2");
  EXPECT_EQ(decide(scene)->hcas[1].mode, Mode::kHca);
  scene.request.wish = *parse_wish("mlx5_3", "x");
  EXPECT_EQ(hcas(scene), "x: `mlx5_3` is in no pool");
  scene.request.wish = *parse_wish("3", "x");
  scene.request.mode = Mode::kExclusive;
  EXPECT_EQ(hcas(scene), "x: asks for 3 HCAs, 2 are free");  // of the pool that allows it
  PlanScene nodes = given({3});
  nodes.config = scene.config;
  nodes.inventory = scene.inventory;
  EXPECT_EQ(hcas(nodes), "");
  EXPECT_EQ(decide(nodes)->nodes.size(), 0U);
  EXPECT_EQ(decide(nodes)->warnings, (std::vector<std::string>{"`mlx5_3` is in no pool: its node is left as it is"}));
}

// Narrowing takes no node away that linux.devices has: what a container can open, nobody else may have alone.
TEST(Plan, givenNodesAreHeldThoughNarrowedAway) {
  PlanScene scene = given({1, 2});
  scene.request.narrowed_by.push_back(*parse_wish("mlx5_2", "x"));
  EXPECT_EQ(hcas(scene), "mlx5_2");
  EXPECT_EQ(decide(scene)->also_open, (std::vector<PlannedHca>{{"mlx5_1", Mode::kHca, 1, std::nullopt, true}}));
  scene.holdings["mlx5_1"].exclusive_holder = "container web";
  EXPECT_EQ(hcas(scene), "`mlx5_1` is held by container web alone, and the container has its node already");
  scene.request.wish.kind = Wish::Kind::kNone;
  EXPECT_EQ(hcas(scene), "`mlx5_1` is held by container web alone, and the container has its node already");
  scene.holdings.clear();
  EXPECT_EQ(hcas(scene), "");
  EXPECT_EQ(decide(scene)->also_open.size(), 2U);
  EXPECT_TRUE(decide(scene)->nodes.empty());
}

// Who has a physical function alone has its virtual ones too, whatever the mode in which others want or hold these.
TEST(Plan, aPhysicalFunctionAloneIsHeldWithItsVirtualOnes) {
  for (const bool is_live : {false, true}) {
    PlanScene scene = asking("mlx5_0");
    if (is_live) {
      scene.inventory.hcas[0].vfs = {"mlx5_2"};  // itself not looked at
      scene.inventory.hcas.resize(2);
    } else {
      scene.inventory.hcas[2].physfn = scene.inventory.hcas[0].pci;
    }
    const auto names = [&] { return Candidates(scene.inventory, scene.request, scene.config).names(); };
    scene.holdings["mlx5_2"].others = 1;
    EXPECT_EQ(hcas(scene), "mlx5_0");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
    EXPECT_EQ(names(), (std::vector<std::string>{"mlx5_0"}));
    scene.request.mode = Mode::kExclusive;
    EXPECT_EQ(names(), (std::vector<std::string>{"mlx5_0", "mlx5_2"}));
    EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: `mlx5_0` has the VF mlx5_2, which is shared by 1 others");
    scene.holdings["mlx5_2"] = held_by("container web");
    EXPECT_EQ(hcas(scene),
              "annotation rdma-init.io/devices: `mlx5_0` has the VF mlx5_2, which is held by container web");
    scene.holdings["mlx5_2"] = {};
    scene.inventory.hcas[0].unseen_vf = "virtfn3, whose HCA is in another network namespace";
    EXPECT_EQ(
        hcas(scene),
        "annotation rdma-init.io/devices: `mlx5_0` has the VF virtfn3, whose HCA is in another network namespace");
    scene.inventory.hcas[0].unseen_vf.reset();
    scene.holdings["mlx5_2"] = own();
    EXPECT_EQ(hcas(scene), "mlx5_0");
    EXPECT_EQ(decide(scene)->also_open, (std::vector<PlannedHca>{{"mlx5_2", Mode::kExclusive, 1, std::nullopt, true}}));
    if (is_live) continue;
    scene.request.wish = *parse_wish("mlx5_2,mlx5_0", "x");
    EXPECT_EQ(hcas(scene), "mlx5_2 mlx5_0");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
    // Also where its own pool says shared.
    PlanScene mixed = scene;
    mixed.request.mode.reset();
    mixed.holdings.clear();
    mixed.inventory.hcas[2].device_id = "0x101e";
    mixed.config.pools = {{"virtual", {}, {Mode::kShared}, {}, std::nullopt},
                          {"physical", {}, {Mode::kExclusive}, {}, std::nullopt}};
    mixed.config.pools[0].selectors.device_ids = {"101e"};
    const auto both = decide(mixed);
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_EQ(both->hcas, (std::vector<PlannedHca>{{"mlx5_2", Mode::kExclusive, 1, std::nullopt},
                                                   {"mlx5_0", Mode::kExclusive, 1, std::nullopt}}));
    PlanScene later = asking("1");
    later.inventory = scene.inventory;
    later.request.mode = Mode::kExclusive;
    later.holdings["mlx5_2"] = own(0);
    later.holdings["mlx5_0"] = own();
    EXPECT_EQ(hcas(later), "mlx5_0") << "not what is only held with it";
    later.inventory.hcas[2].pfs = {"mlx5_0"};
    later.holdings["mlx5_0"] = held_by("container web");
    later.holdings.erase("mlx5_2");
    later.request.wish = *parse_wish("mlx5_2", "x");
    later.request.mode = Mode::kShared;
    EXPECT_EQ(hcas(later), "x: `mlx5_2` is a VF of mlx5_0, which is held by container web") << "made later";
    later.holdings["mlx5_0"] = own();
    EXPECT_EQ(hcas(later), "mlx5_2");
    later.inventory.hcas[2].pfs.clear();
    later.inventory.hcas[2].is_pf_hidden = true;
    EXPECT_EQ(hcas(later), "mlx5_2") << "it is with the container's netdev";
    later.holdings.erase("mlx5_0");
    EXPECT_NE(hcas(later).find("whose HCA is in another network namespace"), std::string::npos);
    // A VF is a function of its own, beside a PF that others share.
    scene.request.wish = *parse_wish("mlx5_2", "x");
    scene.holdings.clear();
    scene.holdings["mlx5_0"].others = 1;
    EXPECT_EQ(hcas(scene), "mlx5_2");
    EXPECT_EQ(decide(scene)->also_open.size(), 0U);
  }
}

TEST(Plan, railOrder) {
  Config config;
  fabric::Inventory inventory = rails(4);
  const auto order = [&] {
    const NodeMap node(inventory, config);
    std::vector<std::string> names;
    for (const NodeHca* hca : node.by_rail()) {
      EXPECT_EQ(hca->rail, names.size());
      names.push_back(hca->name());
    }
    return fabric::join(names, " ");
  };
  inventory.hcas[0].pci = "10000:01:00.0";
  inventory.hcas[2].pci.reset();
  config.rails = {"mlx5_3", "gone"};
  EXPECT_EQ(order(), "mlx5_3 mlx5_1 mlx5_0 mlx5_2");
  // What no pool has comes last, whatever its address.
  inventory = rails(4);
  config.rails.clear();
  config.pools = {{"p", {{}, {}, {}, {"rail1", "rail3"}, {}}, {}, {}, std::nullopt}};
  EXPECT_EQ(order(), "mlx5_1 mlx5_3 mlx5_0 mlx5_2");
}

TEST(Plan, networks) {
  PlanScene scene = asking("mlx5_3,mlx5_1");
  scene.request.network = "fabric";
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: config.json has no network `fabric`");
  scene.config = with_network(Mode::kShared);
  EXPECT_EQ(netdevs(scene), "net1=shared:rail3@3 net2=shared:rail1@1");
  scene.config.netdev_names = "rdma%d";
  scene.request.mode = Mode::kExclusive;
  EXPECT_EQ(netdevs(scene), "rdma1=exclusive:rail3@3 rdma2=exclusive:rail1@1");
  scene.request.mode = Mode::kHca;
  EXPECT_EQ(netdevs(scene), "");
  scene.request.mode.reset();
  scene.host_network = true;
  EXPECT_EQ(netdevs(scene), "");
  EXPECT_EQ(decide(scene)->warnings,
            std::vector<std::string>{
                "network `fabric`: the container is in the node's network namespace, it gets device nodes only"});
  scene.host_network = false;
  scene.config.networks["fabric"].pool = "p";
  scene.config.pools = {{"p", {{}, {}, {}, {"rail1"}, {}}, {}, {}, std::nullopt}, {"q", {}, {}, {}, "fabric"}};
  EXPECT_EQ(netdevs(scene), "annotation rdma-init.io/devices: `mlx5_3` is in pool `q`, the network takes pool `p`");
  scene.request.network.reset();  // the pool's own network
  EXPECT_EQ(netdevs(scene), "rdma1=shared:rail3@3");
  scene.request.network_of_pool = "annotation a";
  EXPECT_EQ(decide(scene)->no_rail, std::vector<std::string>{"mlx5_1"});
  scene.config.networks.clear();
  scene.config.pools.clear();
  EXPECT_EQ(decide(scene)->no_rail, (std::vector<std::string>{"mlx5_3", "mlx5_1"}));
  EXPECT_EQ(decide(scene)->warnings,
            std::vector<std::string>{"annotation a: `mlx5_3` gets no rail: config.json has no \"networks\""});
  scene.request.mode = Mode::kHca;
  EXPECT_EQ(decide(scene)->warnings, std::vector<std::string>{});
}

// rdma-init needs a GID, and the kernel makes those of RoCE of addresses.
TEST(Plan, aRailWithoutAddressIsNotCounted) {
  PlanScene scene = asking("all");
  scene.variables = true;
  scene.request.network = "fabric";
  scene.config = with_network(Mode::kExclusive);
  Network& network = scene.config.networks["fabric"];
  const auto required = [&] {
    const auto plan = decide(scene);
    if (!plan) return plan.error().message;
    if (plan->env.contains("RDMA_INIT_REQUIRE")) return plan->env.at("RDMA_INIT_REQUIRE");
    return fabric::join(plan->warnings, "; ");
  };
  const std::string none =
      "RDMA_INIT_REQUIRE is not set: no rail of a RoCE port has an address: none of its network in config.json, nor of "
      "a "
      "netdev that moves";
  EXPECT_EQ(required(), "4") << "the netdevs bring theirs";
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
  EXPECT_EQ(required(), "2") << "of a rail that no range is for, the netdev brings its own";
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
    hca.ports = {test_support::infiniband_port()};
  EXPECT_EQ(required(), "4") << "InfiniBand needs none";
}

TEST(Plan, netdevOfAnHca) {
  PlanScene scene = asking("mlx5_0");
  scene.config = with_network(Mode::kShared);
  scene.request.network = "fabric";
  auto& netdev = scene.inventory.netdevs[1];
  netdev.master = "bond0";
  scene.inventory.netdevs.push_back(test_support::netdev("bond0", {}));
  EXPECT_EQ(netdevs(scene), "net1=shared:bond0@0");
  scene.request.mode = Mode::kExclusive;
  EXPECT_EQ(netdevs(scene), "`mlx5_0`: `bond0` has enslaved its netdev, which cannot move");
  netdev.master.reset();
  netdev.pci.reset();
  EXPECT_EQ(netdevs(scene), "`mlx5_0`: its netdev is not in the node's network namespace");
  scene.holdings["mlx5_0"] = own();  // where it went
  EXPECT_EQ(netdevs(scene), "");
  scene.holdings.clear();
  scene.inventory.hcas[0].ports[0].gids[0].ndev = fabric::Attr<std::string>("rail0");
  EXPECT_EQ(netdevs(scene), "net1=exclusive:rail0@0");
  scene.inventory.hcas[0].ports[0].netdev = "rail1";
  EXPECT_EQ(netdevs(scene), "net1=exclusive:rail1@0");
}

TEST(Plan, childrenOfInfiniBand) {
  PlanScene scene = asking("mlx5_0");
  scene.request.network = "fabric";
  scene.inventory.hcas[0].ports = {test_support::infiniband_port()};
  scene.config = with_network(Mode::kShared);
  EXPECT_EQ(netdevs(scene), "`mlx5_0`: its link layer is InfiniBand, which takes no macvlan");
  EXPECT_EQ(decide(scene).error().hint, "\"child\": \"ipoib\" in network `fabric`");
  scene.config = with_network(Mode::kShared, "ipoib");
  EXPECT_EQ(netdevs(scene), "net1=shared:rail0@0");
  scene.request.wish = *parse_wish("mlx5_1", "x");
  EXPECT_EQ(netdevs(scene), "`mlx5_1`: its link layer is Ethernet, ipoib needs InfiniBand");
}

TEST(Plan, gpus) {
  PlanScene scene = asking("gpu");
  add_gpus(scene.inventory);
  scene.request.gpu_nodes = {"/dev/nvidia5"};
  EXPECT_EQ(hcas(scene), "mlx5_2");
  scene.request.gpu_nodes = {"/dev/nvidia7", "/dev/nvidia0", "/dev/nvidia1"};
  EXPECT_EQ(hcas(scene), "mlx5_3 mlx5_0");
  scene.request.gpu_nodes = {"/dev/dri/card0", "/dev/dri/renderD134"};
  EXPECT_EQ(hcas(scene), "mlx5_3");
  scene.request.gpu_nodes = {"/dev/nvidia8"};
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: none of the node's 8 GPUs is `/dev/nvidia8`");
  // A live node says which nodes a GPU has: the driver's numbers need not follow PCI addresses.
  (*scene.inventory.gpus)[0].nodes = {"nvidia8", "dri/card1"};
  EXPECT_EQ(hcas(scene), "mlx5_0");
  scene.request.gpu_nodes.clear();
  scene.request.gpu_hint = "2,3";
  EXPECT_EQ(hcas(scene), "mlx5_1");
  for (const char* hint : {"all", "GPU-5", "", "none", "99"}) {
    scene.request.gpu_hint = hint;
    EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: no GPU of the container is known") << hint;
  }
  // Without paths: the socket's, and of these the free ones.
  for (fabric::Hca& hca : scene.inventory.hcas)
    hca.pci_path.reset();
  scene.request.gpu_nodes = {"/dev/nvidia8"};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_1");
  scene.holdings["mlx5_0"] = held_by("container a");
  EXPECT_EQ(hcas(scene), "mlx5_1");
  scene.holdings["mlx5_1"] = held_by("container b");
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: `mlx5_0` is held by container a");
}

std::string uuid_of_gpu(std::size_t number) {
  return fmt::format("GPU-00000000-0000-0000-0000-{:012x}", number);
}

// An image can set the variable, and must not have more by it than its device nodes give.
TEST(Plan, uuidsOfGpusNarrow) {
  PlanScene scene = asking("gpu");
  add_gpus(scene.inventory);
  for (std::size_t i = 0; i < scene.inventory.gpus->size(); ++i)
    (*scene.inventory.gpus)[i].uuid = uuid_of_gpu(i);
  scene.request.gpu_uuids = {uuid_of_gpu(7), uuid_of_gpu(0), uuid_of_gpu(99)};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3") << "no nodes, as with NVIDIA's runtime";
  scene.request.gpu_hint = "2,3";
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_3") << "the rest of that list does not count";
  scene.request.gpu_hint.reset();
  scene.request.gpu_nodes = {"/dev/nvidia0", "/dev/nvidia2"};
  EXPECT_EQ(hcas(scene), "mlx5_0") << "of the nodes those that it names";
  scene.request.gpu_uuids = {uuid_of_gpu(7)};
  EXPECT_EQ(hcas(scene), "mlx5_0 mlx5_1") << "none of the nodes': it says nothing";
  scene.request.gpu_nodes = {"/dev/nvidia8"};
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: none of the node's 8 GPUs is `/dev/nvidia8`");
  scene.request.gpu_nodes.clear();
  scene.request.gpu_uuids = {uuid_of_gpu(99)};
  EXPECT_EQ(hcas(scene), "annotation rdma-init.io/devices: none of the node's 8 GPUs is `" + uuid_of_gpu(99) + "`");
  scene.request.wish = *parse_wish("2", "x");
  scene.request.gpu_uuids = {uuid_of_gpu(2), uuid_of_gpu(6)};
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_3") << "a count";
}

TEST(Plan, aCountIsNearTheGpus) {
  PlanScene scene = asking("2");
  add_gpus(scene.inventory);
  scene.request.gpu_nodes = {"/dev/nvidia2", "/dev/nvidia6"};
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_3");
  scene.holdings["mlx5_3"] = held_by("container a");
  scene.request.mode = Mode::kExclusive;
  EXPECT_EQ(hcas(scene), "mlx5_1 mlx5_2");  // its socket's other
  scene.request.wish = *parse_wish("1", "x");
  scene.request.given = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
  EXPECT_EQ(hcas(scene), "mlx5_0");  // it has that node already
}

TEST(Plan, sysfsView) {
  PlanScene scene = asking("all");
  EXPECT_EQ(decide(scene)->mounts.size(), 0U);  // nothing to hide
  scene.request.wish = *parse_wish("2", "x");
  EXPECT_EQ(decide(scene)->mounts.size(), 2U);
  scene.inventory.class_directories = {{"infiniband"}, {"infiniband_verbs", "6"}, {"infiniband_mad", "5"}};
  EXPECT_EQ(decide(scene)->mounts.size(), 3U);
  fabric::Hca& hca = scene.inventory.hcas[0];
  hca.class_link = "../../devices/a/infiniband/mlx5_0";
  hca.verbs_link = "../../devices/a/infiniband_verbs/uverbs0";
  hca.mad_nodes = {{"umad0", "231:0", 1, "../../devices/a/infiniband_mad/umad0"}, {"issm0", "231:64", 1, "x"}};
  EXPECT_EQ(decide(scene)->view, (std::vector<ViewEntry>{{"infiniband", "", ""},
                                                         {"infiniband", "mlx5_0", *hca.class_link},
                                                         {"infiniband_verbs", "", ""},
                                                         {"infiniband_verbs", "abi_version", "", "6\n"},
                                                         {"infiniband_verbs", "uverbs0", *hca.verbs_link},
                                                         {"infiniband_mad", "", ""},
                                                         {"infiniband_mad", "abi_version", "", "5\n"}}));
  // What is in it decides what it is called, whatever their order.
  const auto plan = *decide(scene);
  const std::string source = "/run/v/" + view_name(plan.view) + "/infiniband_verbs";
  EXPECT_EQ(view_name(plan.view), "set-3304032ca10b18d1b35d2e9e94f12d74");
  EXPECT_EQ(view_name({plan.view.rbegin(), plan.view.rend()}), view_name(plan.view));
  EXPECT_EQ(plan.mounts[1],
            (PlannedMount{"/sys/class/infiniband_verbs", source, "bind", {"bind", "ro", "nosuid", "nodev", "noexec"}}));
  scene.view_mount = ViewMount::kOverlay;
  EXPECT_EQ(decide(scene)->mounts[1],
            (PlannedMount{"/sys/class/infiniband_verbs",
                          source,
                          "overlay",
                          {"lowerdir=" + source + ":/run/v/none", "ro", "nosuid", "nodev", "noexec"}}));
  scene.config.nodes.umad = true;
  EXPECT_NE(view_name(decide(scene)->view), view_name(plan.view));
  EXPECT_EQ(decide(scene)->view.back(), (ViewEntry{"infiniband_mad", "umad0", "../../devices/a/infiniband_mad/umad0"}));
  scene.inventory.netns_mode = fabric::NetnsMode::kExclusive;
  EXPECT_EQ(decide(scene)->mounts.size() + decide(scene)->view.size(), 0U);
  scene.inventory.netns_mode = fabric::NetnsMode::kShared;
  scene.config.sysfs_view = false;
  EXPECT_EQ(decide(scene)->mounts.size() + decide(scene)->view.size(), 0U);
  // What was read for its names alone says nothing about what else there is.
  PlanScene named = asking("mlx5_0");
  named.inventory = rails(1);
  EXPECT_EQ(decide(named)->mounts.size(), 2U);
}

// For rdma-init, which may take GIDs of these alone.
TEST(Plan, theNodesAddressesWhereThereIsNoRail) {
  PlanScene scene = asking("mlx5_0,mlx5_1");
  fabric::Inventory& inventory = scene.inventory;
  scene.variables = true;
  for (const std::size_t i : {0U, 1U, 2U})
    inventory.hcas[i].ports[0].netdev = fmt::format("rail{}", i);
  inventory.netdevs[2].addresses.clear();
  inventory.netdevs[2].master = "bond0";
  fabric::Netdev bond;
  bond.name = "bond0";
  for (const char* address : {"fe80::1", "10.7.0.1", "fd00::7"})
    bond.addresses.push_back({*fabric::parse_address(address), 64, {}});
  inventory.netdevs.push_back(bond);
  const auto told = [&]() -> std::string {
    const auto plan = decide(scene);
    const auto set = plan->env.find("RDMA_INIT_NODE_ADDRESSES");
    return set == plan->env.end() ? "" : set->second;
  };
  EXPECT_EQ(told(), "mlx5_0:1=10.1.0.1,mlx5_1:1=10.7.0.1,mlx5_1:1=fd00::7");
  scene.host_network = true;
  EXPECT_EQ(told(), "");
  scene.host_network = false;
  inventory.netns_mode = fabric::NetnsMode::kExclusive;
  EXPECT_EQ(told(), "");
  inventory.netns_mode = fabric::NetnsMode::kShared;
  scene.variables = false;
  EXPECT_EQ(told(), "");
  scene.variables = true;
  inventory.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(told(), "mlx5_1:1=10.7.0.1,mlx5_1:1=fd00::7");
}

TEST(Plan, candidatesAreWhatIsLocked) {
  const auto locked = [](const PlanScene& scene) {
    return fabric::join(Candidates(scene.inventory, scene.request, scene.config).names(), " ");
  };
  EXPECT_EQ(locked(asking("1")), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
  EXPECT_EQ(locked(asking("mlx5_2,mlx5_2")), "mlx5_2");
  EXPECT_EQ(locked(given({3})), "mlx5_3");
  EXPECT_EQ(locked(asking("none")), "");
  EXPECT_EQ(locked(asking("mlx5_9")), "");
  PlanScene scene = asking("gpu");
  add_gpus(scene.inventory);
  scene.request.gpu_nodes = {"/dev/nvidia0"};
  EXPECT_EQ(locked(scene), "mlx5_0");
}

}  // namespace
}  // namespace hook
