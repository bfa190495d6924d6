#include "shim/nri/adjustment.hpp"

#include <algorithm>

#include "hook/apply/memlock.hpp"
#include "hook/config/config.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

constexpr const char* kMemlock = "RLIMIT_MEMLOCK";
constexpr const char* kRdmaMax = "rdma.max";

Result<void> add_device(const hook::PlannedNode& node, const NriContainer& container, ContainerAdjustment& adjustment) {
  if (!node.major || !node.minor) return make_error("the device number of `{}` is not known", node.path);
  const auto same = [&](const Device& device) { return device.path == node.path; };
  const auto found = std::find_if(container.devices.begin(), container.devices.end(), same);
  if (found == container.devices.end()) {
    adjustment.devices.push_back({node.path, "c", *node.major, *node.minor, node.mode, node.uid, node.gid});
    return {};
  }
  if (found->type == "c" && found->major_number == *node.major && found->minor_number == *node.minor) return {};
  return Error{fmt::format("the container has `{}` as {} {}:{}, on this node it is c {}:{}", node.path, found->type,
                           found->major_number, found->minor_number, *node.major, *node.minor),
               0, "take that device away, or have the device plugin read the numbers anew"};
}

// Rlimits of the container are told from NRI 0.11 on (containerd 2.3, CRI-O 1.36); where a runtime sets one twice, the
// later one holds, which is this. A limit below all that is possible might lower one that cannot be seen.
void raise_memlock(const hook::Plan& plan, const std::optional<hook::Rlimit>& now, ContainerAdjustment& adjustment) {
  if (!plan.memlock || (!now && *plan.memlock != UINT64_MAX)) return;
  if (now && hook::usable(*now) >= *plan.memlock) return;
  const hook::Rlimit raised = hook::raised_memlock(*plan.memlock, now);
  adjustment.rlimits.push_back({kMemlock, raised.hard, raised.soft});
}

void add_environment(const hook::Plan& plan, const NriContainer& container, ContainerAdjustment& adjustment) {
  for (const auto& [name, value] : plan.env) {
    const std::string prefix = name + "=";
    const auto sets = [&](const std::string& entry) { return entry.starts_with(prefix); };
    if (std::none_of(container.env.begin(), container.env.end(), sets)) adjustment.env.emplace(name, value);
  }
}

void add_mounts(const hook::Plan& plan, ContainerAdjustment& adjustment) {
  for (const hook::PlannedMount& mount : plan.mounts)
    adjustment.mounts.push_back({mount.destination, mount.type, mount.source, mount.options});
}

}  // namespace

std::optional<hook::Rlimit> memlock_before(const NriContainer& container,
                                           const std::optional<hook::Rlimit>& inherited) {
  for (const Rlimit& limit : container.rlimits) {
    if (limit.type == kMemlock) return hook::Rlimit{limit.soft, limit.hard};
  }
  return inherited;
}

bool can_limit_rdma(const hook::Plan& plan, hook::RdmaController controller) {
  return controller == hook::RdmaController::kV2 && plan.rdma_limits.size() == 1;
}

Result<ContainerAdjustment> nri_adjustment(const hook::Plan& plan, const std::string& token,
                                           const NriContainer& container, const std::optional<hook::Rlimit>& inherited,
                                           hook::RdmaController controller) {
  ContainerAdjustment adjustment;
  if (plan.hcas.empty()) return adjustment;
  for (const hook::PlannedNode& node : plan.nodes)
    TRY_VOID(add_device(node, container, adjustment));
  raise_memlock(plan, memlock_before(container, inherited), adjustment);
  add_environment(plan, container, adjustment);
  add_mounts(plan, adjustment);
  // A value that another plugin or the engine has set stays: a runtime refuses a container when two set the same.
  if (can_limit_rdma(plan, controller) && !container.unified.contains(kRdmaMax))
    adjustment.unified.emplace(kRdmaMax, hook::rdma_max_line(plan.rdma_limits.front()));
  if (!token.empty()) adjustment.annotations[hook::kGrantAnnotation] = token;
  return adjustment;
}

}  // namespace shim
