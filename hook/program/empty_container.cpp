#include "hook/program/empty_container.hpp"

#include <utility>

#include "base/json/json.hpp"

namespace hook {

std::string empty_container(std::map<std::string, std::string> annotations,
                            const std::optional<std::string>& pod_namespace, Engine engine) {
  if (pod_namespace) {
    const bool is_crio = engine == Engine::kCrio;
    annotations[is_crio ? "io.kubernetes.pod.namespace" : "io.kubernetes.cri.sandbox-namespace"] = *pod_namespace;
  }
  Json of_container = Json::object();
  for (auto& [key, value] : annotations)
    of_container[key] = std::move(value);
  // /sys is mounted, because each engine mounts it. Without this mount the plan would have no view of sysfs.
  const Json sys{{"destination", "/sys"}, {"type", "sysfs"}, {"source", "sysfs"}};
  return Json{{"ociVersion", "1.0.2"},        {"process", {{"args", Json::array({"sh"})}, {"cwd", "/"}}},
              {"root", {{"path", "rootfs"}}}, {"annotations", std::move(of_container)},
              {"mounts", Json::array({sys})}, {"linux", {{"namespaces", Json::array({Json{{"type", "network"}}})}}}}
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace hook
