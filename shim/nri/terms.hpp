// What a runtime tells a plugin, in the terms in which the hook decides, and a plan in the runtime's. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hook/apply/rdma_cgroup.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"
#include "hook/plan/plan.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/result.hpp"

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

// What of the plan the container lacks: what it has already, of the pod's own description or an earlier plugin's, is
// left out, because a runtime refuses a container when two set the same. token: becomes the annotation by which
// createRuntime finds what was booked; empty: none. IPC_LOCK is not part of it: NRI has no capabilities (0.12.2).
// Errors: a device at one of our paths with another number; a node whose number is not known.
// inherited: RLIMIT_MEMLOCK of the runtime; nullopt: not known. controller: of the node, kNone: limits are left out.
Result<ContainerAdjustment> nri_adjustment(const hook::Plan& plan, const std::string& token,
                                           const NriContainer& container,
                                           const std::optional<hook::Rlimit>& inherited = std::nullopt,
                                           hook::RdmaController controller = hook::RdmaController::kNone);

// Whether the adjustment can set the plan's limits: NRI has no RDMA limits (0.12.2) but the files of cgroup v2, and one
// write to rdma.max sets one HCA's. runc before 1.2 and crun write a value in one go, whatever its lines.
bool can_limit_rdma(const hook::Plan& plan, hook::RdmaController controller);

// What the container has without an adjustment; nullopt: not known.
std::optional<hook::Rlimit> memlock_before(const NriContainer& container, const std::optional<hook::Rlimit>& inherited);

}  // namespace shim
