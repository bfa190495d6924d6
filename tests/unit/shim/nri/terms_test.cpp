// NRI's requests as specifications of the hook, and plans as NRI's answers.
#include "shim/nri/terms.hpp"

#include <gtest/gtest.h>

#include "shim/nri/options.hpp"
#include "support/arguments.hpp"
#include "support/results.hpp"

namespace shim {
namespace {

using hook::Engine;
using test_support::must;

NriPod train_pod() {
  return {.id = "p1",
          .name = "train-0",
          .uid = "u-1",
          .pod_namespace = "team-a",
          .annotations = {{"rdma-init.io/devices", "all"}},
          .namespaces = {{"network", "/var/run/netns/cni-1"}, {"pid", ""}}};
}

NriContainer worker() {
  NriContainer container;
  container.id = "c1";
  container.pod_id = "p1";
  container.name = "worker";
  container.env = {"PATH=/bin", "RDMA_VISIBLE_DEVICES=0"};
  container.mounts = {{"/sys", false}, {"/data", true}};
  container.devices = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
  container.namespaces = {{"network", "/proc/77/ns/net"}};
  return container;
}

hook::ContainerSpec spec_of(const NriPod& pod, Engine engine) {
  NriRequest request{.event = Event::kRunPodSandbox, .pod = pod};
  return take_spec(request, engine);
}

hook::ContainerSpec spec_of(const NriPod& pod, const NriContainer& container, Engine engine) {
  NriRequest request{.event = Event::kCreateContainer, .pod = pod, .container = container};
  return take_spec(request, engine);
}

TEST(NriSpec, TakesRequestFromPodAnnotations) {
  const auto spec = spec_of(train_pod(), Engine::kContainerd);
  EXPECT_EQ(spec.annotations.at("rdma-init.io/devices"), "all");
  EXPECT_EQ(spec.netns_path, "/var/run/netns/cni-1");
  EXPECT_TRUE(spec.has_netns);
  const auto identity = hook::pod_identity(spec, Engine::kContainerd);
  EXPECT_EQ(identity.pod_namespace, "team-a");
  EXPECT_FALSE(identity.is_sandbox);
}

TEST(NriSpec, CombinesContainerWithPod) {
  NriContainer container = worker();
  container.memlock = {32768, 65536};
  container.annotations = {{"rdma-init.io/mode", "shared"}};
  const auto spec = spec_of(train_pod(), container, Engine::kContainerd);
  EXPECT_EQ(spec.annotations.at("rdma-init.io/devices"), "all");
  EXPECT_EQ(spec.annotations.at("rdma-init.io/mode"), "shared");
  EXPECT_EQ(spec.env, container.env);
  EXPECT_EQ(spec.devices, (std::vector<hook::SpecDevice>{{"/dev/infiniband/uverbs0", 'c', 231, 192}}));
  EXPECT_EQ(spec.mounts, (std::vector<hook::SpecMount>{{"/sys", false}, {"/data", true}}));
  EXPECT_EQ(spec.netns_path, "/var/run/netns/cni-1") << "the pod's path outlives the pause container";
  EXPECT_EQ(spec.memlock, (hook::Rlimit{32768, 65536}));
  EXPECT_EQ(hook::pod_identity(spec, Engine::kContainerd).container_name, "worker");
}

// The author of a pod writes its annotations. NRI's own fields determine its namespace.
TEST(NriSpec, TakesIdentityFromNriNotFromAnnotations) {
  for (const Engine engine : {Engine::kContainerd, Engine::kCrio}) {
    NriPod pod = train_pod();
    NriContainer container = worker();
    for (const char* name : {"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace",
                             "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri.sandbox-id",
                             "io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid", "io.kubernetes.cri-o.SandboxID"})
      pod.annotations[name] = container.annotations[name] = "trusted";
    for (const char* name : {"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"})
      container.annotations[name] = "sandbox";
    const auto identity = hook::pod_identity(spec_of(pod, container, engine), engine);
    EXPECT_EQ(identity.pod_namespace, "team-a");
    EXPECT_FALSE(identity.is_sandbox);
    EXPECT_EQ(identity.pod_name, "train-0");
    EXPECT_EQ(identity.pod_uid, "u-1");
    EXPECT_EQ(identity.sandbox_id, "p1");
  }
}

TEST(NriSpec, DetectsNetworkNamespaceOfNode) {
  NriPod pod = train_pod();
  pod.namespaces = {{"pid", ""}};
  NriContainer container = worker();
  container.namespaces.clear();
  EXPECT_FALSE(spec_of(pod, Engine::kContainerd).has_netns);
  EXPECT_FALSE(spec_of(pod, container, Engine::kContainerd).has_netns);
  container.namespaces = {{"network", "/proc/77/ns/net"}};
  EXPECT_EQ(spec_of(pod, container, Engine::kContainerd).netns_path, "/proc/77/ns/net") << "a pod without namespaces";
  const NriRequest end{.event = Event::kStopContainer, .pod = pod, .container = container};
  EXPECT_EQ(netns_spec_of(end).netns_path, "/proc/77/ns/net");
  EXPECT_TRUE(netns_spec_of(end).has_netns);
}

// NRI reports neither capabilities nor mappings.
TEST(NriSpec, AssumesThatContainerMayWriteToMounts) {
  NriContainer container = worker();
  EXPECT_EQ(may_write_to_mounts(spec_of(train_pod(), container, Engine::kContainerd)), hook::MayWrite::kYes);
  container.namespaces["user"] = "/proc/7/ns/user";
  const auto spec = spec_of(train_pod(), container, Engine::kContainerd);
  EXPECT_EQ(may_write_to_mounts(spec), hook::MayWrite::kUnknown);
  EXPECT_EQ(spec.userns_path, "/proc/7/ns/user");
}

hook::Plan two_rails() {
  hook::Plan plan;
  plan.hcas = {{"mlx5_0", hook::Mode::kShared, 1, {}}, {"mlx5_1", hook::Mode::kShared, 1, {}}};
  plan.nodes = {{"/dev/infiniband/uverbs0", 231, 192, 0666, 0, 0}, {"/dev/infiniband/uverbs1", 231, 193, 0660, 7, 44}};
  plan.memlock = UINT64_MAX;
  plan.capabilities = {"CAP_IPC_LOCK"};
  plan.env = {{"RDMA_INIT_REQUIRE", "2"}};
  plan.mounts = {{"/sys/class/infiniband", "/run/rdma-hook/views/t/infiniband", "bind", {"bind", "ro"}}};
  return plan;
}

base::Result<ContainerAdjustment> answer_to(const hook::Plan& plan, const std::string& token,
                                            const NriContainer& container,
                                            hook::RdmaController controller = hook::RdmaController::kNone) {
  const auto spec = spec_of({}, container, Engine::kContainerd);
  return nri_adjustment(hook::adjust(plan, spec, token), spec.memlock, controller);
}

TEST(NriAdjustment, ContainsWholePlan) {
  NriContainer container = worker();
  container.devices.clear();
  const auto adjustment = must(answer_to(two_rails(), "abc", container));
  EXPECT_EQ(adjustment.devices, (std::vector<hook::PlannedNode>{{"/dev/infiniband/uverbs0", 231, 192, 0666, 0, 0},
                                                                {"/dev/infiniband/uverbs1", 231, 193, 0660, 7, 44}}));
  EXPECT_EQ(adjustment.memlock, (hook::Rlimit{UINT64_MAX, UINT64_MAX}));
  EXPECT_EQ(adjustment.env, (std::map<std::string, std::string>{{"RDMA_INIT_REQUIRE", "2"}}));
  EXPECT_EQ(adjustment.mounts,
            (std::vector<hook::PlannedMount>{
                {"/sys/class/infiniband", "/run/rdma-hook/views/t/infiniband", "bind", {"bind", "ro"}}}));
  EXPECT_EQ(adjustment.annotations, (std::map<std::string, std::string>{{hook::kGrantAnnotation, "abc"}}));
  EXPECT_EQ(*answer_to({}, "abc", worker()), ContainerAdjustment()) << "no adjustment without HCAs";
}

// The note for the pod's author needs no HCA.
TEST(NriAdjustment, SetsNoteWithoutHcas) {
  const auto adjusted = [](const char* note, const NriContainer& container) {
    return must(answer_to(hook::plan_without_hcas(note), "abc", container));
  };
  ContainerAdjustment expected;
  EXPECT_EQ(adjusted("", worker()), expected);
  expected.env = {{"RDMA_INIT_NOTE", "ignoring"}};
  EXPECT_EQ(adjusted("ignoring", worker()), expected);
  NriContainer container = worker();
  container.env.emplace_back("RDMA_INIT_NOTE=own");
  EXPECT_EQ(adjusted("ignoring", container), ContainerAdjustment());
}

// Two instances of the plugin, a device plugin and the pod may set the same item, which would fail the container.
TEST(NriAdjustment, LeavesOutItemsThatAreSet) {
  NriContainer container = worker();
  container.env.emplace_back("RDMA_INIT_REQUIRE=1");
  container.devices.push_back({"/dev/infiniband/uverbs1", 'c', 231, 193});
  container.memlock = {UINT64_MAX, UINT64_MAX};
  hook::Plan plan = two_rails();
  plan.mounts.clear();
  EXPECT_EQ(must(answer_to(plan, "", container)), ContainerAdjustment());
  // A fact of the node replaces what an image says.
  plan.env["RDMA_INIT_SITE"] = "NCCL_IB_TC=106";
  container.env.emplace_back("RDMA_INIT_SITE=NCCL_IB_TC=1");
  EXPECT_EQ(must(answer_to(plan, "", container)).env,
            (std::map<std::string, std::string>{{"RDMA_INIT_SITE", "NCCL_IB_TC=106"}}));
  container.env.back() = "RDMA_INIT_SITE=NCCL_IB_TC=106";
  EXPECT_EQ(must(answer_to(plan, "", container)), ContainerAdjustment());
}

TEST(NriAdjustment, RaisesLimitButNeverLowersIt) {
  NriContainer low = worker();
  low.memlock = {65536, UINT64_MAX};
  EXPECT_TRUE(answer_to(two_rails(), "", low)->memlock);
  hook::Plan plan = two_rails();
  plan.memlock = 4096;
  const auto limits = [&](std::optional<hook::Rlimit> inherited, std::optional<hook::Rlimit> own = {}) {
    NriContainer container = worker();
    container.memlock = own;
    auto spec = spec_of({}, container, Engine::kContainerd);
    if (!spec.memlock) spec.memlock = inherited;
    return nri_adjustment(hook::adjust(plan, spec), spec.memlock)->memlock;
  };
  EXPECT_EQ(limits(hook::Rlimit{64, 8192}), (hook::Rlimit{4096, 8192}));
  EXPECT_EQ(limits(hook::Rlimit{8192, 8192}), std::nullopt);
  EXPECT_EQ(limits(std::nullopt), std::nullopt) << "the runtime's limit is unknown";
  EXPECT_EQ(limits(hook::Rlimit{8192, 8192}, hook::Rlimit{64, 64}), (hook::Rlimit{4096, 4096}))
      << "the container's own limit counts";
}

TEST(NriAdjustment, RefusesOtherDeviceAtPath) {
  NriContainer container = worker();
  container.devices[0].minor = 200;
  EXPECT_EQ(answer_to(two_rails(), "", container).error().message,
            "the container has `/dev/infiniband/uverbs0` as c 231:200, on this node it is c 231:192");
}

base::Result<NriPluginOptions> parse(std::vector<std::string> arguments,
                                     const std::map<std::string, std::string>& environment = {}) {
  return parse_nri_options(test_support::pointers_to(arguments), [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(NriOptions, ParsesValuesAndDefaults) {
  const auto defaults = must(parse({}));
  EXPECT_EQ(defaults.socket, "/var/run/nri/nri.sock");
  EXPECT_EQ(defaults.identity.index, "10");
  EXPECT_FALSE(defaults.launched_socket);
  const auto set =
      must(parse({"--socket=/s", "--index", "42", "--name", "r", "--engine", "crio", "--ledger=/l", "--root", "/r"}));
  EXPECT_EQ(set.socket, "/s");
  EXPECT_EQ(set.identity.index, "42");
  EXPECT_EQ(set.engine, Engine::kCrio);
  EXPECT_EQ(set.node.ledger, "/l");
  EXPECT_TRUE(parse({"--help", "--nonsense"})->help);
  EXPECT_EQ(engine_of_runtime("containerd"), Engine::kContainerd);
  EXPECT_EQ(engine_of_runtime("cri-o"), Engine::kCrio);
  EXPECT_EQ(engine_of_runtime("docker"), std::nullopt);
  const auto launched =
      must(parse({}, {{"NRI_PLUGIN_NAME", "rdma"}, {"NRI_PLUGIN_IDX", "07"}, {"NRI_PLUGIN_SOCKET", "3"}}));
  EXPECT_EQ(launched.launched_socket, "3");
  EXPECT_EQ(launched.identity.index, "07");
  EXPECT_TRUE(launched.to_syslog) << "the runtime provides no stderr";
}

TEST(NriOptions, RefusesInvalidOptions) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--what=1"}, "unknown option `--what`"},
           {{"x"}, "unexpected argument `x`"},
           {{"--index"}, "`--index` needs a value: NN"},
           {{"--index", "7"}, "plugin index `7`: expected two digits"},
           {{"--engine", "docker"}, "--engine `docker`: expected containerd or crio"}})
    EXPECT_EQ(parse(arguments).error().message, message);
}

TEST(NriAdjustment, LimitsOneHcaOnCgroupV2) {
  using hook::RdmaController;
  hook::Plan plan = two_rails();
  plan.rdma_limits = {{"mlx5_0", {.handles = 8, .objects = 4096}}};
  NriContainer container = worker();
  const auto unified = [&](RdmaController controller) { return answer_to(plan, "", container, controller)->unified; };
  EXPECT_EQ(unified(RdmaController::kV2),
            (std::map<std::string, std::string>{{"rdma.max", "mlx5_0 hca_handle=8 hca_object=4096"}}));
  EXPECT_TRUE(unified(RdmaController::kV1).empty());
  container.unified["rdma.max"] = "mlx5_0 hca_object=1";
  EXPECT_TRUE(unified(RdmaController::kV2).empty()) << "set by another plugin";
  container.unified.clear();
  plan.rdma_limits.push_back({"mlx5_1", {.handles = 8, .objects = 4096}});
  EXPECT_TRUE(unified(RdmaController::kV2).empty()) << "one write sets one HCA";
}

}  // namespace
}  // namespace shim
