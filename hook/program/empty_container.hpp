// The container of `rdma-hook plan --annotation`, which has no bundle.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "hook/oci/engine.hpp"

namespace hook {

// Returns the config.json of a container with these annotations, a network namespace of its own and a mount of /sys.
// The text has no other member on which a plan depends. Pure.
// pod_namespace: adds the annotation in which containerd or CRI-O names the pod's namespace.
std::string empty_container(std::map<std::string, std::string> annotations,
                            const std::optional<std::string>& pod_namespace, Engine engine);

}  // namespace hook
