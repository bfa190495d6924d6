#include "shim/nri/terms.hpp"

#include <array>
#include <initializer_list>

#include "hook/apply/memlock.hpp"
#include "hook/config/config.hpp"

namespace shim {
namespace {

// Returns the path of the namespace of this type; nullopt: it is a new one, or there is none.
std::optional<std::string> path_of(const LinuxNamespaces& namespaces, const char* type) {
  const auto found = namespaces.find(type);
  return found == namespaces.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

// Sets the annotations that engines write into the container's config.json (hook::pod_identity).
void set_identity(const NriPod& pod, const std::string& container, hook::Engine engine, hook::ContainerSpec& spec) {
  const bool crio = engine == hook::Engine::kCrio;
  for (const auto& [of_crio, of_containerd, value] : std::initializer_list<std::array<std::string_view, 3>>{
           {"pod.namespace", "cri.sandbox-namespace", pod.pod_namespace},
           {"container.name", "cri.container-name", container},
           {"cri-o.ContainerType", "cri.container-type", "container"},
           {"pod.name", "cri.sandbox-name", pod.name},
           {"pod.uid", "cri.sandbox-uid", pod.uid},
           {"cri-o.SandboxID", "cri.sandbox-id", pod.id}})
    spec.annotations[fmt::format("io.kubernetes.{}", crio ? of_crio : of_containerd)] = value;
}

constexpr const char* kRdmaMax = "rdma.max";

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

hook::ContainerSpec spec_of(const NriPod& pod, hook::Engine engine) {
  hook::ContainerSpec spec;
  spec.annotations = pod.annotations;
  set_identity(pod, "", engine, spec);
  // A pod without a path is in the node's network namespace.
  spec.netns_path = path_of(pod.namespaces, "network");
  spec.has_netns = spec.netns_path.has_value();
  return spec;
}

hook::ContainerSpec spec_of(const NriPod& pod, const NriContainer& container, hook::Engine engine) {
  hook::ContainerSpec spec = spec_of(pod, engine);
  // containerd copies only those annotations of the pod to a container that containerd's configuration lists. So `spec`
  // has all annotations of the pod, and the container's are added.
  for (const auto& [name, value] : container.annotations)
    spec.annotations[name] = value;
  set_identity(pod, container.name, engine, spec);
  spec.env = container.env;
  spec.devices = container.devices;
  for (const DeviceRule& rule : container.device_rules) {
    // The last matching rule decides, as in the device cgroup.
    if (hook::is_of_all_devices(rule.type, rule.has_major, rule.has_minor, rule.access, rule.allow))
      spec.may_use_all_devices = rule.allow;
  }
  spec.mounts = container.mounts;
  // If the runtime reports no network namespace of the pod, the namespace in the container's own list counts.
  if (!spec.netns_path) {
    spec.has_netns = container.namespaces.contains("network");
    spec.netns_path = path_of(container.namespaces, "network");
  }
  spec.moved_netdevs = container.net_devices;
  spec.has_userns = container.namespaces.contains("user");
  spec.userns_path = path_of(container.namespaces, "user");
  spec.may_remount = true;  // assumed, because NRI does not report capabilities
  spec.memlock = container.memlock;
  // An rdma.max that the container has stays: a runtime refuses a container if two plugins set the same item.
  spec.has_rdma_max = container.unified.contains(kRdmaMax);
  return spec;
}

hook::ContainerSpec spec_of(const NriRequest& request, hook::Engine engine) {
  return request.of_pod() ? spec_of(request.pod, engine) : spec_of(request.pod, request.container, engine);
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
