// The container of `rdma-hook plan --annotation`, which has no bundle.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "hook/oci/engine.hpp"

namespace hook {

// Returns the config.json of a container with these annotations, a network namespace of its own and a mount of /sys,
// and no other member that a plan depends on. pod_namespace: adds the annotation by which containerd or CRI-O name the
// pod's namespace. Pure.
std::string empty_container(std::map<std::string, std::string> annotations,
                            const std::optional<std::string>& pod_namespace, Engine engine);

}  // namespace hook
