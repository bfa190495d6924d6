#include "hook/oci/caller.hpp"

#include <optional>
#include <vector>

#include "base/text.hpp"

namespace hook {
namespace {

// Returns true if CRI-O named the container's cgroup, with the cgroupfs or the systemd driver.
bool is_crios(std::string_view cgroups_path, std::string_view id) {
  return cgroups_path.ends_with(fmt::format("/crio-{}", id)) || cgroups_path.ends_with(fmt::format(":crio:{}", id));
}

// Returns the engine that uses a namespace of containerd (a set of containers, not a kernel namespace). Kubernetes' CRI
// plugin uses k8s.io, and Docker uses moby by default. The client of any other namespace is unknown.
std::optional<Engine> of_namespace(std::string_view name) {
  if (name == "k8s.io") return Engine::kContainerd;
  if (name == "moby") return Engine::kDocker;
  return std::nullopt;
}

std::optional<Engine> recognise_by_bundle(std::string_view bundle, std::string_view cgroups_path) {
  // Only the last three components count: the directories above depend on the engine's configuration.
  std::vector<std::string_view> parts = base::split(bundle, '/');
  std::erase(parts, std::string_view());
  if (parts.size() < 3) return std::nullopt;
  const std::string_view* const last = &parts.back();
  if (last[-2].starts_with("io.containerd.runtime.")) return of_namespace(last[-1]);
  if (!last[-2].ends_with("-containers") || *last != "userdata") return std::nullopt;
  return is_crios(cgroups_path, last[-1]) ? Engine::kCrio : Engine::kPodman;
}

// Detects the engine by the runtime's root. containerd's shim appends its namespace to the root. Docker's own roots are
// /run/docker/runtime-NAME.
std::optional<Engine> recognise_by_root(std::string_view root) {
  if (root.find("/docker/runtime-") != std::string_view::npos) return Engine::kDocker;
  if (root.find("/run/containerd/") == std::string_view::npos) return std::nullopt;
  return of_namespace(base::last_component(root));
}

Recognised doubted(std::string_view who, Engine named, Engine detected) {
  return {Engine::kPodman,
          fmt::format("{} names {}, but the bundle is {}'s", who, to_string(named), to_string(detected)), true};
}

}  // namespace

Recognised recognise(const Caller& caller, std::string_view cgroups_path) {
  const auto detected = recognise_by_bundle(caller.bundle, cgroups_path);
  if (caller.is_named) {
    // With Podman, annotations request nothing by default, so an administrator may always name Podman.
    if (detected && *detected != caller.engine && caller.engine != Engine::kPodman)
      return doubted("the administrator", caller.engine, *detected);
    return {caller.engine, "named by the administrator"};
  }
  const auto by_root = recognise_by_root(caller.runtime_root);
  // The engine sets both the bundle and the root. If the two contradict each other, the setup is unknown, and no
  // annotation is trusted.
  if (detected && by_root && *detected != *by_root) return doubted("the runtime's root", *by_root, *detected);
  if (detected)
    return {*detected,
            *detected == Engine::kCrio ? "detected from its bundle and cgroupsPath" : "detected from its bundle"};
  if (by_root) return {*by_root, "detected from the runtime's root"};
  return {caller.engine, "no engine detected"};
}

}  // namespace hook
