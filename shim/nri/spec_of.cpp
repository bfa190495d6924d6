#include "shim/nri/spec_of.hpp"

#include <algorithm>
#include <utility>

namespace shim {
namespace {

const LinuxNamespace* find_namespace(const std::vector<LinuxNamespace>& namespaces, std::string_view type) {
  const auto found =
      std::find_if(namespaces.begin(), namespaces.end(), [&](const LinuxNamespace& one) { return one.type == type; });
  return found == namespaces.end() ? nullptr : &*found;
}

// As the engines write them into config.json (hook::pod_identity).
void set_identity(const NriPod& pod, const std::string& container, hook::Engine engine, hook::ContainerSpec& spec) {
  if (engine == hook::Engine::kCrio) {
    spec.annotations["io.kubernetes.pod.namespace"] = pod.pod_namespace;
    spec.annotations["io.kubernetes.container.name"] = container;
    spec.annotations["io.kubernetes.cri-o.ContainerType"] = "container";
    spec.annotations["io.kubernetes.pod.name"] = pod.name;
    spec.annotations["io.kubernetes.pod.uid"] = pod.uid;
    spec.annotations["io.kubernetes.cri-o.SandboxID"] = pod.id;
  } else {
    spec.annotations["io.kubernetes.cri.sandbox-namespace"] = pod.pod_namespace;
    spec.annotations["io.kubernetes.cri.container-name"] = container;
    spec.annotations["io.kubernetes.cri.container-type"] = "container";
    spec.annotations["io.kubernetes.cri.sandbox-name"] = pod.name;
    spec.annotations["io.kubernetes.cri.sandbox-uid"] = pod.uid;
    spec.annotations["io.kubernetes.cri.sandbox-id"] = pod.id;
  }
}

// nullopt: the node's.
std::optional<std::string> netns_of(const NriPod& pod) {
  const LinuxNamespace* network = find_namespace(pod.namespaces, "network");
  if (!network || network->path.empty()) return std::nullopt;
  return network->path;
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
  spec.netns_path = netns_of(pod);
  spec.has_netns = spec.netns_path.has_value();
  return spec;
}

hook::ContainerSpec spec_of(const NriPod& pod, const NriContainer& container, hook::Engine engine) {
  hook::ContainerSpec spec = spec_of(pod, engine);
  // containerd gives the container only those of the pod's annotations that its configuration lets through.
  for (const auto& [name, value] : container.annotations)
    spec.annotations[name] = value;
  set_identity(pod, container.name, engine, spec);
  spec.env = container.env;
  for (const Device& device : container.devices)
    spec.devices.push_back({device.path, device.type == "b" ? 'b' : 'c', device.major_number, device.minor_number});
  for (const DeviceRule& rule : container.device_rules) {
    if (hook::is_of_all_devices(rule.type, rule.has_major, rule.has_minor, rule.access, rule.allow)) {
      spec.may_use_all_devices = rule.allow;
    }
  }
  for (const Mount& mount : container.mounts)
    spec.mounts.push_back({mount.destination, mount.type == "bind"});
  if (!spec.netns_path) {
    const LinuxNamespace* network = find_namespace(container.namespaces, "network");
    spec.has_netns = network != nullptr;
    if (network && !network->path.empty()) spec.netns_path = network->path;
  }
  spec.moved_netdevs = container.net_devices;
  const LinuxNamespace* user = find_namespace(container.namespaces, "user");
  spec.has_userns = user != nullptr;
  if (user && !user->path.empty()) spec.userns_path = user->path;
  spec.may_remount = true;  // NRI tells no capabilities
  for (const Rlimit& limit : container.rlimits) {
    if (limit.type == "RLIMIT_MEMLOCK") spec.memlock = hook::Rlimit{limit.soft, limit.hard};
  }
  return spec;
}

hook::ContainerSpec spec_of(const NriRequest& request, hook::Engine engine) {
  return request.of_pod() ? spec_of(request.pod, engine) : spec_of(request.pod, request.container, engine);
}

}  // namespace shim
