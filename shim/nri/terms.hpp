// Converts between NRI's messages and the terms of the hook: requests to specifications, adjustments to answers. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/apply/adjustment.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"
#include "shim/nri/wire/messages.hpp"

namespace shim {

// Returns the engine for a runtime's name in Configure: "containerd" or "cri-o". nullopt: another runtime.
std::optional<hook::Engine> engine_of_runtime(std::string_view name);

// Returns the specification of the container of a request, or of the pod itself, which requests HCAs only by the pod's
// annotations and serves for a grant before any container exists. Namespace, names, uid and sandbox come from NRI's own
// fields, which replace annotations of these names. Moves annotations, environment, mounts and netdevs out of the
// request: a container has about a hundred variables, which would be copied at each start.
hook::ContainerSpec take_spec(NriRequest& request, hook::Engine engine);

// Returns a specification with the network namespace only, by which the grant of a container or pod is found.
hook::ContainerSpec netns_spec_of(const NriRequest& request);

// Returns the adjustment as NRI's answer. Leaves out items that the container has, because a runtime refuses a
// container if two plugins set the same item, and CAP_IPC_LOCK, because an NRI plugin cannot add capabilities (0.12.2).
// memlock: the container's present RLIMIT_MEMLOCK, which runtimes report since NRI 0.11 (containerd 2.3, CRI-O 1.36).
// If it is unknown (nullopt), only an unlimited value is set, because any other value could lower the limit.
// controller: the node's cgroup controller for RDMA; kNone: no limits are set. Errors: the container has a device with
// another number at the path of a node; the device number of a node is unknown.
Result<ContainerAdjustment> nri_adjustment(const hook::Adjustment& adjustment,
                                           const std::optional<hook::Rlimit>& memlock = std::nullopt,
                                           hook::RdmaController controller = hook::RdmaController::kNone);

// Returns true if an adjustment can set the RDMA limits: on cgroup v2, for one HCA. NRI (0.12.2) can set RDMA limits
// only as a file of cgroup v2, rdma.max. The kernel accepts the limits of one HCA per write(2) to it, and runc before
// 1.2 and crun write a value of several lines with one write(2).
bool can_limit_rdma(const std::vector<hook::PlannedRdmaLimit>& limits, hook::RdmaController controller);

}  // namespace shim
