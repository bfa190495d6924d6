#include "shim/nri/terms.hpp"

#include <utility>

#include "hook/apply/memlock.hpp"
#include "hook/config/config.hpp"

namespace shim {
namespace {

constexpr const char* kRdmaMax = "rdma.max";

// Returns the path of the namespace of this type; nullopt: it is a new one, or there is none.
std::optional<std::string> path_of(const LinuxNamespaces& namespaces, const char* type) {
  const auto found = namespaces.find(type);
  return found == namespaces.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

// An annotation that engines write into the container's config.json (hook::pod_identity).
struct IdentityNames {
  const char* of_containerd;
  const char* of_crio;
};

void set_identity(const NriPod& pod, const std::string& container, hook::Engine engine, hook::ContainerSpec& spec) {
  const auto set = [&](const IdentityNames& names, std::string_view value) {
    spec.annotations[engine == hook::Engine::kCrio ? names.of_crio : names.of_containerd] = value;
  };
  set({"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}, pod.pod_namespace);
  set({"io.kubernetes.cri.container-name", "io.kubernetes.container.name"}, container);
  set({"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}, "container");
  set({"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"}, pod.name);
  set({"io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"}, pod.uid);
  set({"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"}, pod.id);
}

// Sets the network namespace: that of the pod, or of the container, if the runtime reports none for the pod. A pod
// without a path is in the node's network namespace.
void set_netns(const NriPod& pod, const NriContainer& container, hook::ContainerSpec& spec) {
  spec.netns_path = path_of(pod.namespaces, "network");
  if (!spec.netns_path) spec.netns_path = path_of(container.namespaces, "network");
  spec.has_netns = spec.netns_path || container.namespaces.contains("network");
}

void take_container(NriContainer& container, hook::ContainerSpec& spec) {
  spec.env = std::move(container.env);
  spec.devices = container.devices;
  for (const DeviceRule& rule : container.device_rules) {
    // The last matching rule decides, as in the device cgroup.
    if (hook::is_of_all_devices(rule.type, rule.has_major, rule.has_minor, rule.access, rule.allow))
      spec.may_use_all_devices = rule.allow;
  }
  spec.mounts = std::move(container.mounts);
  spec.moved_netdevs = std::move(container.net_devices);
  spec.has_userns = container.namespaces.contains("user");
  spec.userns_path = path_of(container.namespaces, "user");
  spec.may_remount = true;  // assumed, because NRI does not report capabilities
  spec.memlock = container.memlock;
  // An rdma.max that the container has stays: a runtime refuses a container if two plugins set the same item.
  spec.has_rdma_max = container.unified.contains(kRdmaMax);
}

Result<void> add_device(const hook::AdjustedNode& adjusted, ContainerAdjustment& answer) {
  const hook::PlannedNode& node = adjusted.node;
  if (!node.major || !node.minor) return make_error("the device number of `{}` is not known", node.path);
  if (adjusted.is_present()) return {};
  if (const auto& other = adjusted.present)
    return Error{fmt::format("the container has `{}` as {} {}:{}, on this node it is c {}:{}", node.path, other->type,
                             other->major, other->minor, *node.major, *node.minor),
                 0, "remove that device, or restart the device plugin that added it"};
  answer.devices.push_back(node);
  return {};
}

}  // namespace

std::optional<hook::Engine> engine_of_runtime(std::string_view name) {
  if (name == "containerd") return hook::Engine::kContainerd;
  if (name == "cri-o") return hook::Engine::kCrio;
  return std::nullopt;
}

hook::ContainerSpec take_spec(NriRequest& request, hook::Engine engine) {
  NriPod& pod = request.pod;
  NriContainer& container = request.container;
  hook::ContainerSpec spec;
  spec.annotations = std::move(pod.annotations);
  // containerd copies only those annotations of the pod to a container that containerd's configuration lists. So `spec`
  // has all annotations of the pod, and the container's are added.
  for (auto& [name, value] : container.annotations)
    spec.annotations[name] = std::move(value);
  set_identity(pod, container.name, engine, spec);
  set_netns(pod, container, spec);
  if (!request.of_pod()) take_container(container, spec);
  return spec;
}

hook::ContainerSpec netns_spec_of(const NriRequest& request) {
  hook::ContainerSpec spec;
  set_netns(request.pod, request.container, spec);
  return spec;
}

bool can_limit_rdma(const std::vector<hook::PlannedRdmaLimit>& limits, hook::RdmaController controller) {
  return controller == hook::RdmaController::kV2 && limits.size() == 1;
}

Result<ContainerAdjustment> nri_adjustment(const hook::Adjustment& adjustment,
                                           const std::optional<hook::Rlimit>& memlock,
                                           hook::RdmaController controller) {
  ContainerAdjustment answer;
  answer.env = adjustment.env;
  for (const hook::AdjustedNode& node : adjustment.nodes)
    TRY_VOID(add_device(node, answer));
  // If the container already has this rlimit, the answer's value replaces it, because it comes later in the list.
  if (adjustment.memlock && (memlock || *adjustment.memlock == UINT64_MAX))
    answer.memlock = hook::raised_memlock(*adjustment.memlock, memlock);
  answer.mounts = adjustment.mounts;
  if (can_limit_rdma(adjustment.rdma_limits, controller))
    answer.unified.emplace(kRdmaMax, hook::rdma_max_line(adjustment.rdma_limits.front()));
  if (!adjustment.token.empty()) answer.annotations[hook::kGrantAnnotation] = adjustment.token;
  return answer;
}

}  // namespace shim
