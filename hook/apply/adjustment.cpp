#include "hook/apply/adjustment.hpp"

#include <algorithm>

#include "fabric/library_variables.hpp"
#include "hook/apply/memlock.hpp"

namespace hook {

Adjustment adjust(const Plan& plan, const ContainerSpec& spec, const std::string& token) {
  Adjustment adjustment;
  for (const auto& [name, value] : plan.env) {
    const auto own = find_env(spec, name);
    if (!own || (fabric::is_node_variable(name) && *own != value)) adjustment.env.emplace(name, value);
  }
  if (plan.hcas.empty()) return adjustment;
  adjustment.nodes.reserve(plan.nodes.size());
  for (const PlannedNode& node : plan.nodes) {
    const auto present = std::ranges::find(spec.devices, node.path, &SpecDevice::path);
    adjustment.nodes.push_back({node, present == spec.devices.end() ? std::nullopt : std::optional(*present)});
  }
  if (!spec.memlock || usable(*spec.memlock) < plan.memlock) adjustment.memlock = plan.memlock;
  adjustment.capabilities = plan.capabilities;
  if (!spec.has_rdma_max) adjustment.rdma_limits = plan.rdma_limits;
  adjustment.mounts = plan.mounts;
  adjustment.token = token;
  return adjustment;
}

}  // namespace hook
