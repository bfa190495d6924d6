// What a runtime tells a plugin of pods and containers, in the terms in which the hook decides. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"
#include "shim/nri/wire/values.hpp"

namespace shim {

// The names that containerd and CRI-O give themselves in Configure: "containerd", "cri-o". nullopt: another runtime.
std::optional<hook::Engine> engine_of_runtime(std::string_view name);

// A container of the pod. What the engine itself knows of it, namespace, names, uid and sandbox, comes from NRI's own
// fields and stands over annotations of these names.
hook::ContainerSpec spec_of(const NriPod& pod, const NriContainer& container, hook::Engine engine);
// The pod as a container that asks by the pod's annotations alone: for what is given before there is any.
hook::ContainerSpec spec_of(const NriPod& pod, hook::Engine engine);

// The container or pod that a request is about.
hook::ContainerSpec spec_of(const NriRequest& request, hook::Engine engine);

}  // namespace shim
