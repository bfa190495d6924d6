// Each annotation and variable that can request HCAs, with any value, alone and together, for each engine.
#include <algorithm>

#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/request/request.hpp"
#include "hook_node.hpp"
#include "require.hpp"

namespace {

using fuzz::require;
using hook::Engine;

constexpr const char* kAnnotations[] = {"rdma-init.io/devices",
                                        "rdma-init.io/devices.trainer",
                                        "rdma-init.io/mode",
                                        "rdma-init.io/network",
                                        "k8s.volcengine.com/pod-networks",
                                        "cni.spidernet.io/rdma-resource-inject",
                                        "io.kubernetes.cri.container-name",
                                        "cni.spidernet.io/network-resource-inject",
                                        "io.kubernetes.cri.sandbox-namespace"};
constexpr const char* kVariables[] = {"RDMA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES", "PCIDEVICE_RDMA_HCA",
                                      "NVIDIA_VISIBLE_DEVICES"};

hook::ContainerSpec arbitrary_spec(FuzzedDataProvider& data) {
  hook::ContainerSpec spec;
  spec.root_path = "rootfs";
  for (int left = data.ConsumeIntegralInRange(0, 4); left > 0; --left) {
    const std::string key = data.PickValueInArray(kAnnotations);
    spec.annotations[key] = data.ConsumeRandomLengthString(120);
  }
  for (int left = data.ConsumeIntegralInRange(0, 2); left > 0; --left) {
    const std::string name = data.PickValueInArray(kVariables);
    spec.env.push_back(name + "=" + data.ConsumeRandomLengthString(60));
  }
  for (int left = data.ConsumeIntegralInRange(0, 3); left > 0; --left) {
    const unsigned number = data.ConsumeIntegralInRange(0U, 5U);
    spec.devices.push_back({"/dev/infiniband/uverbs" + std::to_string(number), 'c', 231, 192 + number});
  }
  if (data.ConsumeBool()) spec.devices.push_back({"/dev/nvidia0", 'c', 195, 0});
  spec.has_netns = data.ConsumeBool();
  return spec;
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  constexpr Engine kEngines[] = {Engine::kRunc, Engine::kDocker, Engine::kPodman, Engine::kCrio, Engine::kContainerd};
  const Engine engine = data.PickValueInArray(kEngines);
  hook::Config config;
  if (data.ConsumeBool()) config.annotations_may_request = {data.ConsumeBool() ? "*" : "team-*"};
  config.env_may_request = data.ConsumeBool();
  if (data.ConsumeBool()) config.networks["rdma"] = {"rdma", hook::Mode::kShared, "macvlan", std::nullopt};
  const hook::ContainerSpec spec = arbitrary_spec(data);
  const auto asked = hook::parse_request(spec, config, engine);
  if (!asked) return fuzz::require_one_line(asked.error().message, "the refusal of a request");
  for (const std::string& warning : asked->warnings)
    fuzz::require_one_line(warning, "a warning");
  if (!asked->pod_note.empty()) fuzz::require_one_line(asked->pod_note, "the note for the pod");
  require(asked->pod_note.size() <= hook::kLongestPodNote, "the note for the pod is short");
  const bool silent = config.annotations_may_request.empty() && !config.env_may_request;
  const bool believed = hook::annotations_are_the_operators(engine);
  require(!asked->request || believed || !silent || !asked->request->granted_nodes.empty(),
          "only the operator's settings request an HCA");
  if (!asked->request) return;

  const fabric::Inventory node = fuzz::small_node();
  const hook::Candidates among(node, *asked->request, config);
  const auto plan = hook::make_plan({.among = among,
                                     .holdings = {},
                                     .view_directory = "/run/rdma-hook/views/x",
                                     .host_network = !spec.has_netns,
                                     .variables = true});
  if (!plan) return fuzz::require_one_line(plan.error().message, "the refusal of a plan");
  require(plan->hcas.empty() == plan->nodes.empty(), "a plan has nodes exactly if it has HCAs");
  const auto names = among.names();
  for (const auto& hca : plan->hcas)
    require(std::find(names.begin(), names.end(), hca.name) != names.end(), "a granted HCA was locked", hca.name);
  const auto named = hook::named_hcas(*asked->request);
  for (const auto& hca : plan->hcas)
    require(!named || std::find(named->begin(), named->end(), hca.name) != named->end(),
            "a grant has only requested names", hca.name);
}
