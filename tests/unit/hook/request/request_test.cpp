// Requests of containers: sources, trust and refusals.
#include "hook/request/request.hpp"

#include <gtest/gtest.h>

#include "hook/request/parsers.hpp"

namespace hook {
namespace {

using Annotations = std::map<std::string, std::string>;
using Strings = std::vector<std::string>;

constexpr const char* kOwnDevices = "rdma-init.io/devices";
constexpr const char* kVolcengine = "k8s.volcengine.com/pod-networks";
constexpr const char* kSpiderpool = "cni.spidernet.io/rdma-resource-inject";
constexpr const char* kTwoNics =
    R"([{"cniConf":{"name":"rdma"}},{"cniConf":{"name":"other"}},{"cniConf":{"name":"rdma"}}])";

constexpr const char* kFabricNic = R"([{"cniConf":{"name":"fabric"}}])";
constexpr const char* kTwoNetworks = R"([{"cniConf":{"name":"fabric"}},{"cniConf":{"name":"storage"}}])";

// Returns "none", "all", "4", or the list; sources that narrow it behind "&"; "given" if the given nodes are the
// request.
std::string shown(const HcaSelection& selection) {
  switch (selection.kind) {
    case HcaSelection::Kind::kNone:
      return "none";
    case HcaSelection::Kind::kAll:
      return "all";
    case HcaSelection::Kind::kCount:
      return std::to_string(selection.count);
    case HcaSelection::Kind::kList:
      return selection.selectors.text;
  }
  return "?";
}

std::string shown(const ParsedRequest& asked) {
  if (!asked.request) return asked.warnings.empty() ? "nothing" : "ignored";
  const Request& request = *asked.request;
  std::string text = request.has_nodes_of_grant ? "given" : shown(request.selection);
  for (const HcaSelection& by : request.narrowed_by)
    text += " & " + shown(by);
  if (request.mode) text += " mode " + std::string(to_string(*request.mode));
  if (request.network) text += " network " + *request.network;
  if (!request.network_of_pool.empty()) text += " network of pool";
  if (!asked.warnings.empty()) text += " !";
  return text;
}

Annotations annotation(const char* name, const char* value) {
  return {{name, value}};
}

Annotations devices(const std::string& value) {
  return {{kOwnDevices, value}};
}

Annotations volcengine(const std::string& value) {
  return {{kVolcengine, value}};
}

Annotations volcengine(const std::string& value, const Annotations::value_type& another) {
  return {{kVolcengine, value}, another};
}

struct RequestRow {
  const char* name;
  Engine engine = Engine::kRunc;
  Annotations annotations;
  const char* expected;  // shown(), or the error
  unsigned granted = 0;  // uverbs nodes
  std::vector<std::string> env = {};
  std::string pod_namespace = {};
  std::vector<std::string> may_request = {};
};

ContainerSpec spec_of(const RequestRow& row) {
  ContainerSpec spec;
  spec.annotations = row.annotations;
  spec.annotations["io.kubernetes.cri.sandbox-namespace"] = row.pod_namespace;
  spec.annotations["io.kubernetes.pod.namespace"] = row.pod_namespace;
  spec.annotations["io.kubernetes.cri.container-name"] = "trainer";
  spec.env = row.env;
  for (unsigned i = 0; i < row.granted; ++i)
    spec.devices.push_back({fmt::format("/dev/infiniband/uverbs{}", i), 'c', 231, 192 + i});
  return spec;
}

void check(const std::vector<RequestRow>& rows, Config config = {}) {
  for (const RequestRow& row : rows) {
    config.annotations_may_request = row.may_request;
    const auto asked = parse_request(spec_of(row), config, row.engine);
    EXPECT_EQ(asked ? shown(*asked) : asked.error().message, row.expected) << row.name;
  }
}

TEST(Request, RequestsOnlyFromTrustedSources) {
  const Annotations two = devices("2");
  const Annotations other_sandbox = {{kOwnDevices, "2"}, {"io.kubernetes.cri-o.SandboxName", "k8s_train-0_team-a_u_0"}};
  const Annotations mode_and_network = {{"rdma-init.io/mode", "exclusive"}, {"rdma-init.io/network", "n"}};
  check(
      {{"runc: the operator writes them", Engine::kRunc, two, "2"},
       {"docker: the operator writes them", Engine::kDocker, two, "2"},
       {"podman: an image writes them", Engine::kPodman, two, "ignored"},
       {"podman: a glob of namespaces does not match", Engine::kPodman, two, "ignored", 0, {}, "train-1", {"train-*"}},
       {"podman: trusted by `*`", Engine::kPodman, two, "2", 0, {}, "", {"*"}},
       {"containerd: another namespace", Engine::kContainerd, two, "ignored", 0, {}, "team-b", {"team-a"}},
       {"containerd: a trusted namespace", Engine::kContainerd, two, "2", 0, {}, "train-7", {"team-a", "train-*"}},
       {"crio: a trusted namespace", Engine::kCrio, two, "2", 0, {}, "team-a", {"team-a"}},
       {"crio: a label of another namespace than its sandbox's", Engine::kCrio, other_sandbox,
        "cannot determine the pod's namespace: its sandbox has `team-a`, the label `io.kubernetes.pod.namespace` has "
        "`team-b`",
        0, Strings(), "team-b", Strings{"team-a"}},
       {"untrusted, nodes given: narrows them", Engine::kContainerd, two, "given & 2", 4, {}, "x"},
       {"untrusted none, nodes given", Engine::kContainerd, devices("none"), "given & none", 4, {}, "x"},
       {"untrusted all, nodes given", Engine::kContainerd, devices("all"), "given", 4, {}, "x"},
       {"trusted, nodes given: the annotation decides", Engine::kRunc, two, "2", 4},
       {"trusted none is explicit", Engine::kRunc, devices("none"), "none", 4},
       {"untrusted mode and network change nothing", Engine::kPodman, mode_and_network, "given !", 1}});
  const auto asked =
      parse_request(spec_of({"", Engine::kContainerd, two, "", 0, {}, "team-b"}), {}, Engine::kContainerd);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->warnings, std::vector<std::string>{
                                 "ignoring annotation rdma-init.io/devices: with containerd in namespace `team-b` it "
                                 "may not request HCAs; remedy: add the namespace to \"annotations_may_request\" in "
                                 "config.json"});
  EXPECT_EQ(asked->pod_note,
            "ignoring annotation rdma-init.io/devices: with containerd in namespace team-b it may not request HCAs, "
            "remedy: add the namespace to annotations_may_request in config.json");
}

TEST(Request, NotesAnnotationsWithoutEffect) {
  Config config;
  config.annotations_may_request = {"team-a"};
  const auto note = [&](const Annotations& annotations, unsigned nodes = 0, const char* pod_namespace = "team-a") {
    const auto asked = parse_request(spec_of({"", Engine::kContainerd, annotations, "", nodes, {}, pod_namespace}),
                                     config, Engine::kContainerd);
    return asked ? asked->pod_note : asked.error().message;
  };
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note(devices("2")), "");
  EXPECT_EQ(note(devices("2"), 4, "other"), "") << "the annotation narrows the given nodes";
  EXPECT_EQ(note({}, 4, "other"), "");
  EXPECT_EQ(note(annotation("rdma-init.io/device", "8")),
            "ignoring unknown annotation rdma-init.io/device: known are rdma-init.io/devices, rdma-init.io/mode and "
            "rdma-init.io/network");
  EXPECT_TRUE(note({{kOwnDevices, "2"}, {"rdma-init.io/Mode", "shared"}}).starts_with("ignoring unknown")) << "granted";
  const std::string two = note({{"rdma-init.io/mode", "shared"}, {"rdma-init.io/network", "n"}}, 1, "other");
  EXPECT_TRUE(two.starts_with("ignoring annotation rdma-init.io/mode: ")) << two;
  EXPECT_TRUE(two.ends_with(", and 1 more in the log of the node")) << two;
}

// The pod's author writes key and namespace.
TEST(Request, BoundsNoteForPod) {
  EXPECT_EQ(hook::pod_note({}), "");
  EXPECT_EQ(hook::pod_note({"a\nb $x; `c` \"d\" \xff"}), "a?b \\x24x, c d ?");
  EXPECT_EQ(hook::pod_note({std::string(300, 'x')}).size(), hook::kLongestPodNote);
  EXPECT_EQ(hook::pod_note({std::string(300, 'x'), "y", "z"}).size(), hook::kLongestPodNote);
  std::string euros;
  for (int i = 0; i < 100; ++i)
    euros += "\u20ac";
  EXPECT_EQ(hook::pod_note({euros}), euros.substr(0, 198));
  for (const char* key : {"rdma-init.io/x\n\x1b[31m", "rdma-init.io/$(reboot)`;\"'"}) {
    const auto asked = parse_request(spec_of({"", Engine::kRunc, {{key, "1"}}, ""}), {}, Engine::kRunc);
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->pod_note.find_first_of("\n\x1b$`;\"'()"), std::string::npos) << asked->pod_note;
  }
}

TEST(Request, FirstSourceDecides) {
  const Annotations all_three = {{kOwnDevices, "mlx5_1"}, {kVolcengine, kTwoNics}, {kSpiderpool, "n"}};
  const Annotations for_trainer = {{kOwnDevices, "8"}, {"rdma-init.io/devices.trainer", "2"}};
  const Annotations for_other = {{kOwnDevices, "8"}, {"rdma-init.io/devices.other", "2"}};
  const Annotations last_two = {{kVolcengine, kTwoNics}, {kSpiderpool, "n"}};
  check({{"own first", Engine::kRunc, all_three, "mlx5_1 network of pool"},
         {"volcengine next", Engine::kRunc, last_two, "2 network of pool"},
         {"spiderpool next", Engine::kRunc, annotation(kSpiderpool, "n"), "all network of pool"},
         {"given nodes", Engine::kContainerd, {}, "given", 2},
         {"nothing", Engine::kRunc, {}, "nothing"},
         {"mode only requests nothing", Engine::kRunc, annotation("rdma-init.io/mode", "shared"), "nothing"},
         {"mode for given nodes", Engine::kRunc, annotation("rdma-init.io/mode", "shared"), "given mode shared", 1},
         {"own none overrides the other annotations", Engine::kRunc, volcengine(kTwoNics, {kOwnDevices, "none"}),
          "nothing"},
         {"a key for this container", Engine::kContainerd, for_trainer, "2", 0, {}, "a", {"a"}},
         {"a key for another container", Engine::kContainerd, for_other, "8", 0, {}, "a", {"a"}},
         {"runc has no container names", Engine::kRunc, for_trainer, "8"},
         {"an unknown key is a warning", Engine::kRunc, annotation("rdma-init.io/device", "8"), "ignored"}});
  Config config;
  config.default_devices = "1";
  check({{"default", Engine::kPodman, {}, "1"},
         {"default, narrowed", Engine::kPodman, devices("mlx5_0"), "1 & mlx5_0"},
         {"default, refused", Engine::kPodman, devices("none"), "nothing"},
         {"given before default", Engine::kPodman, {}, "given", 1}},
        config);
  config.default_devices.reset();
  config.trusted_annotations = {"k8s.volcengine.com"};
  check({{"own annotations are not read", Engine::kRunc, all_three, "2 network of pool"}}, config);
}

TEST(Request, UmadNodesAndSandboxRequestNothing) {
  ContainerSpec umad;
  umad.devices = {{"/dev/infiniband/umad0", 'c', 231, 0}, {"/dev/infiniband/issm0", 'c', 231, 64}};
  EXPECT_EQ(shown(*parse_request(umad, Config(), Engine::kRunc)), "nothing");
  ContainerSpec spec;
  spec.annotations = {{kOwnDevices, "all"}, {"io.kubernetes.cri.container-type", "sandbox"}};
  Config config;
  config.annotations_may_request = {"*"};
  EXPECT_EQ(shown(*parse_request(spec, config, Engine::kContainerd)), "nothing");
  // Under Podman, an image could have written that annotation, so it does not hide the container.
  EXPECT_EQ(shown(*parse_request(spec, config, Engine::kPodman)), "all");
}

TEST(Request, VariablesNarrowAndRequestIfAllowed) {
  const std::vector<std::string> all = {"MELLANOX_VISIBLE_DEVICES=all"};
  const std::vector<std::string> first = {"MELLANOX_VISIBLE_DEVICES=all", "RDMA_VISIBLE_DEVICES=0"};
  const std::vector<std::string> bad = {"MELLANOX_VISIBLE_DEVICES=mlx5_0"};
  const Annotations two = {{kOwnDevices, "2"}};
  check({
      {"a variable only: no request, no warning", Engine::kRunc, {}, "nothing", 0, all},
      {"an invalid variable only: no request, no warning", Engine::kRunc, {}, "nothing", 0, bad},
      {"all narrows nothing", Engine::kRunc, two, "2", 0, all},
      {"RDMA_ before MELLANOX_", Engine::kRunc, two, "2 & 0", 0, first},
      {"empty is not set", Engine::kRunc, two, "2 & 1", 0, {"RDMA_VISIBLE_DEVICES=", "MELLANOX_VISIBLE_DEVICES=1"}},
      {"none", Engine::kRunc, two, "nothing", 0, {"RDMA_VISIBLE_DEVICES=none"}},
      {"void", Engine::kPodman, {}, "given & none", 2, {"RDMA_VISIBLE_DEVICES=void"}},
      {"narrows the given nodes", Engine::kPodman, {}, "given & 0,1", 2, {"RDMA_VISIBLE_DEVICES=0,1"}},
      {"a name", Engine::kRunc, two, "variable MELLANOX_VISIBLE_DEVICES: `mlx5_0` is not an index", 0, bad},
      {"a hole", Engine::kRunc, two, "variable RDMA_VISIBLE_DEVICES: `` is not an index", 0,
       Strings{"RDMA_VISIBLE_DEVICES=0,,1"}},
      {"negative", Engine::kRunc, two, "variable RDMA_VISIBLE_DEVICES: `-1` is not an index", 0,
       Strings{"RDMA_VISIBLE_DEVICES=-1"}},
  });
  Config config;
  config.env_may_request = true;
  check({{"may request", Engine::kPodman, {}, "0,2", 0, {"RDMA_VISIBLE_DEVICES=0,2"}},
         {"may request all", Engine::kPodman, {}, "all", 0, all},
         {"requests none", Engine::kPodman, {}, "nothing", 0, {"RDMA_VISIBLE_DEVICES=none"}},
         {"is not set", Engine::kPodman, {}, "nothing"}},
        config);
}

TEST(Request, ReadsVolcengineAnnotation) {
  const Annotations two_nics = {{kVolcengine, kTwoNics}};
  check({{"other names are ignored", Engine::kRunc, volcengine(R"([{"cniConf":{"name":"eni"}}])"), "nothing"},
         {"invalid entries are ignored", Engine::kRunc, volcengine(R"([{}, {"cniConf": 1}, {"cniConf":{"name":2}}])"),
          "nothing"},
         {"matches the given nodes", Engine::kContainerd, two_nics, "given", 2},
         {"matches, and may request: still the given nodes", Engine::kContainerd, two_nics, "given", 2, {}, "a", {"a"}},
         {"contradicts the given nodes", Engine::kContainerd, two_nics,
          "annotation k8s.volcengine.com/pod-networks: names 2 NICs, but the container has 3 uverbs nodes", 3},
         {"no list", Engine::kRunc, volcengine("{}"), "annotation k8s.volcengine.com/pod-networks: expected a list"},
         {"no objects", Engine::kRunc, volcengine("[1]"),
          "annotation k8s.volcengine.com/pod-networks: expected objects in the list"},
         {"podman may not request by it", Engine::kPodman, two_nics, "ignored"}});
  ContainerSpec broken;
  broken.annotations[kVolcengine] = R"([{"cniConf")";
  const std::string message = parse_request(broken, {}, Engine::kRunc).error().message;
  EXPECT_TRUE(message.starts_with("annotation k8s.volcengine.com/pod-networks: invalid JSON")) << message;
  const Annotations::value_type one = {kOwnDevices, "1"};
  Config config;
  config.networks = {{"fabric", {"fabric", Mode::kShared, "macvlan", {}}}, {"storage", {"storage", {}, "macvlan", {}}}};
  check({{"a configured network", Engine::kRunc, volcengine(kFabricNic), "1 network fabric"},
         {"\"rdma\" is the network of the pools", Engine::kRunc, two_nics, "2 network of pool"},
         {"\"rdma\" is the network that another entry names", Engine::kRunc,
          volcengine(R"([{"cniConf":{"name":"rdma"}},{"cniConf":{"name":"storage"}}])"), "2 network storage"},
         {"the own annotation's network", Engine::kRunc, volcengine(kTwoNics, {"rdma-init.io/network", "storage"}),
          "2 network storage"},
         {"podman may not choose by it", Engine::kPodman, two_nics, "given !", 2},
         {"beside the own annotation's HCAs", Engine::kRunc, volcengine(kFabricNic, one), "1 network fabric"},
         {"\"rdma\" beside the own annotation's HCAs", Engine::kRunc, volcengine(kTwoNics, one), "1 network of pool"},
         {"no JSON beside the own annotation's HCAs", Engine::kRunc, volcengine("{", one), "1 !"},
         {"two networks beside the own annotation's HCAs", Engine::kRunc, volcengine(kTwoNetworks, one), "1 !"},
         {"no JSON in an untrusted annotation", Engine::kPodman, volcengine("{"), "ignored"},
         {"no JSON in an untrusted annotation, with nodes", Engine::kPodman, volcengine("{"), "given !", 2},
         {"nothing beside none", Engine::kRunc, volcengine(kTwoNics, {kOwnDevices, "none"}), "nothing"},
         {"spiderpool's unknown network beside the own annotation's HCAs", Engine::kRunc,
          Annotations{{kSpiderpool, "x"}, one}, "1 !"},
         {"two networks", Engine::kRunc, volcengine(kTwoNetworks),
          "annotation k8s.volcengine.com/pod-networks: names the networks `fabric` and `storage`, but a container gets "
          "only one"}},
        config);
  config.networks.erase("storage");
  check({{"\"rdma\" is the only network", Engine::kRunc, two_nics, "2 network fabric"},
         {"podman may not choose it", Engine::kPodman, two_nics, "given !", 2}},
        config);
  config.pools = {Pool{}};
  config.pools.front().network = "fabric";
  check({{"\"rdma\" is the pool's network", Engine::kRunc, two_nics, "2 network of pool"}}, config);
}

TEST(Request, ReadsSpiderpoolNetworks) {
  const Annotations fabric = {{kSpiderpool, "fabric"}};
  Config config;
  config.networks["fabric"] = {"fabric", std::nullopt, "macvlan", std::nullopt};
  config.namespaces_exclude = {"kube-*"};
  check(
      {{"spiderpool", Engine::kRunc, fabric, "all network fabric"},
       {"the other key", Engine::kRunc, annotation("cni.spidernet.io/network-resource-inject", "fabric"),
        "all network fabric"},
       {"with nodes given", Engine::kContainerd, fabric, "given network fabric", 2, {}, "a", {"a"}},
       {"untrusted, with nodes given", Engine::kContainerd, fabric, "given !", 2, {}, "a"},
       {"unknown network", Engine::kRunc, annotation(kSpiderpool, "x"),
        "annotation cni.spidernet.io/rdma-resource-inject: there is no network `x`"},
       {"excluded namespace", Engine::kContainerd, fabric, "nothing", 0, {}, "kube-system", {"*"}},
       {"own network only", Engine::kRunc, annotation("rdma-init.io/network", "fabric"), "all network fabric"},
       {"own unknown network", Engine::kRunc, annotation("rdma-init.io/network", "x"),
        "annotation rdma-init.io/network: there is no network `x`"},
       {"own network, spiderpool's wish", Engine::kRunc,
        Annotations{{"rdma-init.io/mode", "exclusive"}, {kSpiderpool, "fabric"}}, "all mode exclusive network fabric"}},
      config);
  config.namespaces_include = {"team-a"};
  check({{"included", Engine::kContainerd, fabric, "all network fabric", 0, {}, "team-a", {"*"}},
         {"not included", Engine::kContainerd, fabric, "nothing", 0, {}, "team-b", {"*"}}},
        config);
}

TEST(Request, RefusesMalformedValues) {
  const Annotations own_mode = {{kOwnDevices, "1"}, {"rdma-init.io/mode", "own"}};
  const std::string long_value(kMaxValueBytes + 1, 'x');
  std::string long_list = "a";
  for (std::size_t i = 0; i < kMaxListEntries; ++i)
    long_list += ",a";
  check({{"mode", Engine::kRunc, own_mode, "annotation rdma-init.io/mode: `own` is not a mode"},
         {"empty", Engine::kRunc, devices(" "), "annotation rdma-init.io/devices: the value is empty"},
         {"zero", Engine::kRunc, devices("0"), "annotation rdma-init.io/devices: `0`: expected a count from 1 to 1024"},
         {"too many", Engine::kRunc, devices("1025"),
          "annotation rdma-init.io/devices: `1025`: expected a count from 1 to 1024"},
         {"selector", Engine::kPodman, devices("rail:x"),
          "annotation rdma-init.io/devices: `rail:x`: expected a number, 0 or more, after ':'"},
         {"long value", Engine::kPodman, devices(long_value),
          "annotation rdma-init.io/devices: 65537 bytes; the maximum is 65536"},
         {"long list", Engine::kPodman, devices(long_list),
          "annotation rdma-init.io/devices: a list of 4097 entries; the maximum is 4096"},
         {"long PCIDEVICE", Engine::kPodman, Annotations(), "variable PCIDEVICE_X: 65537 bytes; the maximum is 65536",
          1, Strings{"PCIDEVICE_X=" + long_value}}});
}

TEST(Request, ReadsNodesAndOrder) {
  ContainerSpec spec;
  spec.devices = {{"/dev/infiniband/uverbs1", 'c', 231, 193}, {"/dev/infiniband/uverbs1", 'c', 231, 193},
                  {"/dev/infiniband/uverbs2", 'b', 231, 194}, {"/dev/infiniband/uverbs", 'c', 1, 1},
                  {"/dev/infiniband/uverbs1x", 'c', 1, 1},    {"/dev/infiniband/uverbs11111111111", 'c', 1, 1},
                  {"/dev/infiniband/rdma_cm", 'c', 10, 58},   {"/dev/nvidia3", 'c', 195, 3},
                  {"/dev/nvidiactl", 'c', 195, 255},          {"/dev/dri/renderD128", 'c', 226, 128}};
  spec.env = {"PCIDEVICE_A=0000:1a:00.0, 0000:2a:00.0", "PCIDEVICE_A_INFO={}", "NVIDIA_VISIBLE_DEVICES=0"};
  const auto asked = parse_request(spec, {}, Engine::kContainerd);
  ASSERT_TRUE(asked && asked->request);
  EXPECT_EQ(asked->request->granted_nodes, (std::vector<SpecDevice>{{"/dev/infiniband/uverbs1", 'c', 231, 193}}));
  EXPECT_EQ(asked->request->gpu_nodes, (std::vector<std::string>{"/dev/nvidia3", "/dev/dri/renderD128"}));
  EXPECT_EQ(asked->request->order, (std::vector<std::string>{"0000:1a:00.0", "0000:2a:00.0"}));
  EXPECT_FALSE(asked->request->gpu_hint) << "an image can set it";
  Config config;
  config.env_may_request = true;
  EXPECT_EQ(parse_request(spec, config, Engine::kContainerd)->request->gpu_hint, "0");
}

TEST(Request, ReadsUuidsOfGpus) {
  const std::string one = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  const std::string two = "GPU-00000000-0000-0000-0000-000000000002";
  const std::string unknown = std::string(8, '?') + "-0000-0000-0000-" + std::string(12, '?');
  const std::vector<std::pair<std::string, std::vector<std::string>>> rows = {
      {one, {one}},
      {" " + two + " ,0,all," + one + "," + two, {two, one}},
      {"GPU-8932F937-D72C-4106-C12F-20BD9FAED9F6", {one}},
      {"MIG-" + one + "/3/0," + two + "/1/0", {one, two}},
      {"MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", {}},
      {"GPU-8932f937,GPU-" + unknown + ",gpu-,GPU-,MIG-,MIG-GPU-,/,,", {}},
      {"all", {}},
      {"none", {}},
      {"0,1", {}}};
  for (const auto& [value, expected] : rows) {
    ContainerSpec spec;
    spec.annotations[kOwnDevices] = "gpu";
    spec.env = {"NVIDIA_VISIBLE_DEVICES=" + value};
    const auto asked = parse_request(spec, {}, Engine::kRunc);
    ASSERT_TRUE(asked && asked->request) << value;
    EXPECT_EQ(asked->request->gpu_uuids, expected) << value;
    EXPECT_FALSE(asked->request->gpu_hint) << value;
  }
}

// A pod's author can read UUIDs in an earlier pod: they must not allocate HCAs to a pod without a request.
TEST(Request, UuidsDoNotRequestDefault) {
  const std::string uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  Config config;
  config.default_devices = "gpu";
  ContainerSpec spec;
  spec.env = {"NVIDIA_VISIBLE_DEVICES=" + uuid};
  EXPECT_TRUE(parse_request(spec, config, Engine::kPodman)->request->gpu_uuids.empty());
  config.env_may_request = true;
  EXPECT_EQ(parse_request(spec, config, Engine::kPodman)->request->gpu_uuids, std::vector<std::string>{uuid});
  config.env_may_request = false;
  spec.devices.emplace_back().path = "/dev/nvidia0";
  EXPECT_EQ(parse_request(spec, config, Engine::kPodman)->request->gpu_uuids, std::vector<std::string>{uuid});
}

// An image sets the variable: a long value must not stop the container.
TEST(Request, IgnoresVariableWithMillionGpus) {
  ContainerSpec spec;
  spec.annotations[kOwnDevices] = "gpu";
  std::string many = "NVIDIA_VISIBLE_DEVICES=";
  for (unsigned i = 0; i < 1000000; ++i)
    many += "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,";
  spec.env = {many};
  const auto asked = parse_request(spec, {}, Engine::kRunc);
  ASSERT_TRUE(asked && asked->request);
  EXPECT_TRUE(asked->request->gpu_uuids.empty());
  ASSERT_EQ(asked->warnings.size(), 1U);
  EXPECT_TRUE(asked->warnings.front().ends_with("; it is ignored")) << asked->warnings.front();
}

// Any path may lead to a node, so its number identifies it.
TEST(Request, FindsUverbsNodesUnderAnyPath) {
  const std::vector<SpecDevice> others = {{"/dev/null", 'c', 1, 3},  {"/dev/a", 'c', 231, 191},
                                          {"/dev/b", 'c', 231, 224}, {"/dev/c", 'b', 231, 193},
                                          {"/dev/d", 'c', 230, 193}, {"/dev/e", 'c', 511, 8},
                                          {"/dev/f", 'c', 231, 0},   {"/dev/infiniband/umad0", 'c', 231, 0}};
  const auto granted = [&](std::vector<SpecDevice> devices) {
    ContainerSpec spec;
    spec.devices = std::move(devices);
    spec.devices.insert(spec.devices.end(), others.begin(), others.end());
    const auto asked = parse_request(spec, {}, Engine::kRunc);
    return asked && asked->request ? asked->request->granted_nodes : std::vector<SpecDevice>();
  };
  EXPECT_TRUE(granted({}).empty());
  for (const char* path : {"/dev/infiniband/../infiniband/uverbs1", "/dev/infiniband//uverbs1", "/dev/foo", "foo"}) {
    const std::vector<SpecDevice> one = {{path, 'c', 231, 193}};
    EXPECT_EQ(granted(one), one) << path;
  }
  const std::vector<SpecDevice> ends = {{"/dev/x", 'c', 231, 192}, {"/dev/y", 'c', 231, 223}};
  EXPECT_EQ(granted(ends), ends);
  const std::vector<SpecDevice> dynamic = {{"/dev/x", 'c', 511, 9, 41}};
  EXPECT_EQ(granted(dynamic), dynamic) << "the node resolved it";
  const SpecDevice named{"/dev/infiniband/uverbs1", 'c', 231, 193};
  EXPECT_EQ(granted({{"/dev/x", 'c', 231, 193}, named}), std::vector<SpecDevice>{named}) << "one node, counted once";
}

// mknod(2) truncates them to 231:192.
TEST(Request, RefusesDeviceNumbersThatKernelTruncates) {
  const std::pair<std::int64_t, std::int64_t> rows[] = {
      {4096 + 231, 192}, {231 - 4096, 192}, {231, (1 << 20) + 192}, {231, -1}};
  for (const auto& [major, minor] : rows) {
    ContainerSpec spec;
    spec.devices = {{"/dev/x", 'c', major, minor}};
    EXPECT_EQ(parse_request(spec, {}, Engine::kRunc).error().message,
              fmt::format("linux.devices: `/dev/x` has {}:{}, which is not a device number", major, minor));
    spec.devices[0].type = 'p';
    EXPECT_TRUE(parse_request(spec, {}, Engine::kRunc)) << "a FIFO has none";
  }
  ContainerSpec last;
  last.devices = {{"/dev/x", 'c', 4095, (1 << 20) - 1}};
  EXPECT_TRUE(parse_request(last, {}, Engine::kRunc));
}

// Engines add the node's whole /dev to a privileged container.
TEST(Request, NodesOfPrivilegedContainerAreNoRequest) {
  ContainerSpec spec;
  spec.devices = {{"/dev/infiniband/uverbs0", 'c', 231, 192}, {"/dev/infiniband/uverbs1", 'c', 231, 193}};
  EXPECT_EQ(parse_request(spec, {}, Engine::kRunc)->request->granted_nodes.size(), 2U);
  spec.may_use_all_devices = true;
  const auto privileged = parse_request(spec, {}, Engine::kRunc);
  ASSERT_TRUE(privileged);
  EXPECT_FALSE(privileged->request);
  EXPECT_TRUE(privileged->warnings.empty());
  EXPECT_EQ(privileged->note.text, "the container may use all devices: its 2 uverbs nodes are no request");
  EXPECT_FALSE(privileged->note.for_all);
  spec.env = {"PATH=/bin", "PCIDEVICE_NVIDIA_COM_RDMA=0000:1a:00.0"};
  const auto by_plugin = parse_request(spec, {}, Engine::kRunc);
  ASSERT_TRUE(by_plugin);
  EXPECT_FALSE(by_plugin->request);
  EXPECT_TRUE(by_plugin->note.for_all);
  EXPECT_EQ(by_plugin->note.text,
            "the container may use all devices: its 2 uverbs nodes are no request, nor are those of "
            "PCIDEVICE_NVIDIA_COM_RDMA: other containers can get the same HCAs; request them by annotation");
  Config generous;
  generous.default_devices = "all";
  EXPECT_FALSE(parse_request(spec, generous, Engine::kRunc)->request) << "it has the nodes anyway";
  generous = {};
  generous.env_may_request = true;
  spec.env = {"MELLANOX_VISIBLE_DEVICES=all"};
  EXPECT_FALSE(parse_request(spec, generous, Engine::kRunc)->request) << "an image set it";
  spec.env.clear();
  spec.annotations = {{"rdma-init.io/devices", "mlx5_1"}};
  const auto requesting = parse_request(spec, {}, Engine::kRunc);
  ASSERT_TRUE(requesting && requesting->request);
  EXPECT_EQ(shown(requesting->request->selection), "mlx5_1");
  EXPECT_TRUE(requesting->request->granted_nodes.empty());
}

TEST(Request, NamedHcasLimitTheRead) {
  const std::pair<const char*, std::optional<std::vector<std::string>>> rows[] = {
      {"mlx5_1,mlx5_0,mlx5_1:1", std::vector<std::string>{"mlx5_0", "mlx5_1"}},
      {"mlx5_*", std::nullopt},
      {"^mlx5_0", std::nullopt},
      {"mlx5_0,rail:1", std::nullopt},
      {"all", std::nullopt},
      {"2", std::nullopt}};
  for (const auto& [selection, expected] : rows) {
    Request request;
    request.selection = *parse_selection(selection, "test");
    EXPECT_EQ(named_hcas(request), expected) << selection;
    request.narrowed_by.push_back(*parse_selection("index:0", "test"));
    EXPECT_EQ(named_hcas(request), std::nullopt) << selection;
  }
}

}  // namespace
}  // namespace hook
