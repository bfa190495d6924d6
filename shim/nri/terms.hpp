// Converts between NRI's messages and the terms of the hook: requests to specifications, plans to adjustments. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"
#include "hook/plan/plan.hpp"
#include "shim/nri/wire/messages.hpp"

namespace shim {

// Returns the engine for a runtime's name in Configure: "containerd" or "cri-o". nullopt: another runtime.
std::optional<hook::Engine> engine_of_runtime(std::string_view name);

// Returns the specification of a container in the pod. Namespace, names, uid and sandbox come from NRI's own fields,
// which replace annotations of these names.
hook::ContainerSpec spec_of(const NriPod& pod, const NriContainer& container, hook::Engine engine);
// Returns a specification for the pod itself, which requests HCAs only by the pod's annotations. It serves for a grant
// before any container exists.
hook::ContainerSpec spec_of(const NriPod& pod, hook::Engine engine);

// Returns the specification of the container or pod of a request.
hook::ContainerSpec spec_of(const NriRequest& request, hook::Engine engine);

// Returns the parts of the plan that the container lacks. Parts that the pod's description or an earlier plugin has
// already set are left out, because a runtime refuses a container if two plugins set the same item. CAP_IPC_LOCK is not
// included: an NRI plugin cannot add capabilities (0.12.2).
// token: becomes the annotation by which createRuntime finds the booking; empty: none. inherited: RLIMIT_MEMLOCK of the
// runtime; nullopt: not known. controller: the node's cgroup controller for RDMA; kNone: no limits are set. Errors: the
// container already has a device with another device number at the path of a node in the plan; the device number of
// a node in the plan is unknown.
Result<ContainerAdjustment> nri_adjustment(const hook::Plan& plan, const std::string& token,
                                           const NriContainer& container,
                                           const std::optional<hook::Rlimit>& inherited = std::nullopt,
                                           hook::RdmaController controller = hook::RdmaController::kNone);

// Returns true if an adjustment can set the plan's RDMA limits: on cgroup v2, for one HCA. NRI (0.12.2) can set RDMA
// limits only as a file of cgroup v2, rdma.max. The kernel accepts the limits of one HCA per write(2) to it, and runc
// before 1.2 and crun write a value of several lines with one write(2).
bool can_limit_rdma(const hook::Plan& plan, hook::RdmaController controller);

// Returns the RLIMIT_MEMLOCK that the container has without an adjustment; nullopt: not known. inherited: as for
// nri_adjustment().
std::optional<hook::Rlimit> memlock_before(const NriContainer& container, const std::optional<hook::Rlimit>& inherited);

}  // namespace shim
