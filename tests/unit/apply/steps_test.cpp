#include "hook/apply/live/steps.hpp"

#include <gtest/gtest.h>

#include "hook/apply/rdma_cgroup.hpp"

namespace hook {
namespace {

constexpr std::uint64_t kUnlimited = UINT64_MAX;

const char* const kNoCapability =
    "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is unlimited instead, which is enough for ibv_reg_mr";
const char* const kNotInExec =
    "`exec` into this container gets the engine's RLIMIT_MEMLOCK, not unlimited: use rdma-runtime, or raise it there "
    "(--ulimit memlock=-1:-1)";

LiveNode podman(std::optional<Rlimit> memlock = std::nullopt) {
  return {"", Engine::kPodman, memlock};
}

PlannedNode node(std::string path, std::uint32_t major, std::uint32_t minor) {
  return PlannedNode{std::move(path), major, minor, 0660, 1, 2};
}

Plan usual_plan() {
  Plan plan;
  plan.nodes = {node("/dev/infiniband/uverbs0", 231, 192), node("/dev/infiniband/rdma_cm", 10, 57)};
  plan.memlock = kUnlimited;
  plan.capabilities = {"CAP_IPC_LOCK"};
  plan.mounts = {{"/sys/class/infiniband", "/run/rdma-hook/views/k/infiniband", "bind", {"ro"}}};
  return plan;
}

TEST(LiveSteps, NodesThenMountsThenRulesThenMemlock) {
  const auto live = live_steps(usual_plan(), {}, {}, podman());
  ASSERT_TRUE(live);
  const std::vector<Step> expected = {
      MakeNode{"/dev/infiniband/uverbs0", 231, 192, 0660, 1, 2, false, ""},
      MakeNode{"/dev/infiniband/rdma_cm", 10, 57, 0660, 1, 2, false, ""},
      BindDirectory{"/run/rdma-hook/views/k/infiniband", "/sys/class/infiniband"},
      AllowDevices{{{231, 192}, {10, 57}}},
      SetMemlock{kUnlimited, kNoCapability},
  };
  EXPECT_TRUE(live->steps == expected);
  EXPECT_EQ(live->warnings, (std::vector<std::string>{kNotInExec}));
}

TEST(LiveSteps, LimitsRdmaObjectsBeforeDevicesOpen) {
  Plan plan = usual_plan();
  plan.rdma_limits = {{"mlx5_0", {2, 4096}}};
  EXPECT_TRUE(live_steps(plan, {}, {}, podman())->steps[3] == Step(LimitRdma{plan.rdma_limits}));
}

TEST(LimitRdma, OnlyLowers) {
  const PlannedRdmaLimit limit{"mlx5_1", {.handles = 8, .objects = 4096}};
  const auto line = [&](const char* now) { return lowering_line(now, limit).value_or("none"); };
  EXPECT_EQ(line("mlx5_10 hca_handle=1 hca_object=1 \nmlx5_1 hca_handle=max hca_object=max \n"),
            "mlx5_1 hca_handle=8 hca_object=4096");
  EXPECT_EQ(line("mlx5_1 hca_handle=9 hca_object=100 \n"), "mlx5_1 hca_handle=8 hca_object=100");
  EXPECT_EQ(line("mlx5_1 hca_handle=8 hca_object=100 \n"), "none");
  EXPECT_EQ(lowering_line("mlx5_1 hca_handle=3 hca_object=max \n", {"mlx5_1", {.handles = {}, .objects = 5}}),
            "mlx5_1 hca_handle=3 hca_object=5");
  EXPECT_EQ(line(""), "mlx5_1 hca_handle=8 hca_object=4096") << "the kernel then says that there is no such device";
}

TEST(LiveSteps, UserNamespaceBindsTheNodesOfTheNode) {
  ContainerSpec spec;
  spec.has_userns = true;
  const auto live = live_steps(usual_plan(), spec, {}, {.root = "/tree"});
  ASSERT_TRUE(live);
  EXPECT_TRUE(live->steps[0] ==
              Step(MakeNode{"/dev/infiniband/uverbs0", 231, 192, 0660, 1, 2, true, "/tree/dev/infiniband/uverbs0"}));
}

TEST(LiveSteps, AnOverlayHasItsLayers) {
  Plan plan = usual_plan();
  plan.mounts = {
      {"/sys/class/infiniband", "/v/set/infiniband", "overlay", {"lowerdir=/v/set/infiniband:/v/none", "ro"}}};
  EXPECT_TRUE(live_steps(plan, {}, {}, podman())->steps[2] ==
              Step(BindDirectory{"/v/set/infiniband", "/sys/class/infiniband", "/v/set/infiniband:/v/none"}));
}

TEST(LiveSteps, NothingPlannedNothingDone) {
  const auto live = live_steps({}, {}, {}, podman());
  ASSERT_TRUE(live);
  EXPECT_TRUE(live->steps.empty());
  EXPECT_TRUE(live->warnings.empty());
}

TEST(LiveSteps, OneRuleForADeviceWithTwoNodes) {
  Plan plan;
  plan.nodes = {node("/dev/a", 231, 192), node("/dev/b", 231, 192)};
  const auto live = live_steps(plan, {}, {}, podman());
  ASSERT_TRUE(live);
  EXPECT_TRUE(live->steps.at(2) == Step(AllowDevices{{{231, 192}}}));
  EXPECT_EQ(live->steps.size(), 3U);
}

TEST(LiveSteps, UnknownNumberIsAnError) {
  Plan plan = usual_plan();
  plan.nodes[1].minor.reset();
  const auto live = live_steps(plan, {}, {}, podman());
  ASSERT_FALSE(live);
  EXPECT_EQ(live.error().message,
            "cannot make `/dev/infiniband/rdma_cm` in the container: its device number is not known");
  EXPECT_EQ(live.error().hint, "apply a plan of the live node, not of a snapshot");
}

struct MemlockRow {
  const char* name;
  std::optional<std::uint64_t> planned;
  std::optional<Rlimit> listed;
  bool from_crun;
  std::optional<std::uint64_t> step;
  std::vector<std::string> warnings;
};

const MemlockRow kMemlockRows[] = {
    {"runc, none listed", kUnlimited, std::nullopt, false, kUnlimited, {kNotInExec}},
    {"runc, less listed",
     kUnlimited,
     Rlimit{65536, 131072},
     false,
     std::nullopt,
     {"cannot set RLIMIT_MEMLOCK to unlimited at createRuntime: the runtime sets the 65536 bytes of config.json after "
      "this hook; take the limit out of the engine's options, raise it there (--ulimit memlock=-1:-1), or use "
      "rdma-runtime",
      "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is 65536 bytes, and ibv_reg_mr beyond it fails: use "
      "rdma-runtime, or --cap-add IPC_LOCK"}},
    {"runc, enough listed", 65536, Rlimit{kUnlimited, kUnlimited}, false, std::nullopt, {kNoCapability}},
    {"crun, less listed", kUnlimited, Rlimit{65536, 65536}, true, kUnlimited, {kNotInExec}},
    {"left alone",
     std::nullopt,
     std::nullopt,
     false,
     std::nullopt,
     {"cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is left as the engine sets it, and ibv_reg_mr beyond "
      "it "
      "fails: use rdma-runtime, or --cap-add IPC_LOCK"}},
};

TEST(LiveSteps, Memlock) {
  for (const MemlockRow& row : kMemlockRows) {
    SCOPED_TRACE(row.name);
    Plan plan;
    plan.memlock = row.planned;
    plan.capabilities = {"CAP_IPC_LOCK"};
    ContainerSpec spec;
    spec.memlock = row.listed;
    OciState state;
    state.from_crun = row.from_crun;
    const auto live = live_steps(plan, spec, state, podman());
    ASSERT_TRUE(live);
    std::vector<Step> expected;
    if (row.step) expected.emplace_back(SetMemlock{*row.step, kNoCapability});
    EXPECT_TRUE(live->steps == expected);
    EXPECT_EQ(live->warnings, row.warnings);
  }
}

constexpr std::uint64_t kSix = std::uint64_t{6} << 20;
constexpr std::uint64_t kEight = std::uint64_t{8} << 20;

struct SaidRow {
  const char* name;
  std::optional<std::uint64_t> planned;
  std::optional<Rlimit> now;
  bool has_ipc_lock;
  bool has_userns;
  std::vector<Step> steps;
  std::vector<std::string> warnings;
};

// What is said is what is there afterwards, in the words of the engine.
TEST(LiveSteps, WhatTheContainerHas) {
  const std::string beyond = ", and ibv_reg_mr beyond it fails: ";
  const std::string add = "use rdma-runtime, or IPC_LOCK in capabilities.add of the container's securityContext";
  const std::string raise = R"((default_ulimits = ["memlock=-1:-1"] in crio.conf))";
  const std::string exec = "`exec` into this container gets the engine's RLIMIT_MEMLOCK, not ";
  const std::string cannot = "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is ";
  const SaidRow rows[] = {
      {"more than is planned",
       kSix,
       Rlimit{kEight, kEight},
       false,
       false,
       {},
       {cannot + "8388608 bytes" + beyond + add}},
      {"raised",
       kEight,
       Rlimit{kSix, kSix},
       false,
       false,
       {SetMemlock{kEight, cannot + "8388608 bytes" + beyond + add}},
       {exec + "8388608 bytes: use rdma-runtime, or raise it there " + raise}},
      {"left alone", std::nullopt, Rlimit{kSix, kSix}, false, false, {}, {cannot + "6291456 bytes" + beyond + add}},
      {"it has the capability",
       kEight,
       Rlimit{kSix, kSix},
       true,
       false,
       {SetMemlock{kEight}},
       {exec + "8388608 bytes: use rdma-runtime, or raise it there " + raise}},
      {"nothing is missing", kEight, Rlimit{kUnlimited, kUnlimited}, true, false, {}, {}},
      {"a user namespace",
       kSix,
       Rlimit{kEight, kEight},
       true,
       true,
       {},
       {"CAP_IPC_LOCK counts for nothing in a user namespace; RLIMIT_MEMLOCK is 8388608 bytes" + beyond +
        "raise that " + raise}},
  };
  for (const SaidRow& row : rows) {
    SCOPED_TRACE(row.name);
    Plan plan;
    plan.memlock = row.planned;
    plan.capabilities = {"CAP_IPC_LOCK"};
    ContainerSpec spec;
    spec.has_ipc_lock = row.has_ipc_lock;
    spec.has_userns = row.has_userns;
    const auto live = live_steps(plan, spec, {}, {.engine = Engine::kCrio, .memlock = row.now});
    ASSERT_TRUE(live);
    EXPECT_TRUE(live->steps == row.steps);
    EXPECT_EQ(live->warnings, row.warnings);
  }
}

}  // namespace
}  // namespace hook
