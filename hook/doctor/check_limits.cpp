#include "hook/doctor/check_limits.hpp"

#include <algorithm>

#include "fabric/text.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

std::vector<Finding> findings_of_controller(const fabric::Result<RdmaController>& controller) {
  if (!controller) return {{Grade::kWarning, "limits", controller.error().message, controller.error().hint}};
  const auto none = no_limits(*controller);
  if (!none) return {};
  return {
      {Grade::kWarning, "limits", fmt::format("{}: hca_objects and hca_handles are not set", none->why), none->remedy}};
}

}  // namespace

std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<fabric::Result<RdmaController>>& controller) {
  std::vector<Finding> findings;
  if (config.pools.empty()) return findings;
  std::vector<std::string> seen;
  const NodeMap map(inventory, config);
  for (const NodeHca* node : map.by_rail()) {
    if (!node->pool || std::find(seen.begin(), seen.end(), node->pool->name) != seen.end()) continue;
    seen.push_back(node->pool->name);
    if (node->pool->rdma_limits.objects || !is_shared(*node->pool)) continue;
    findings.push_back(
        {Grade::kWarning, fmt::format("pool {}", node->pool->name),
         "one container can take all objects of an HCA that others share",
         "write \"limits\": {\"hca_objects\": N} into the pool; rdma-init.json(5) says how to choose N"});
  }
  if (controller && limits_rdma(config)) {
    for (Finding& finding : findings_of_controller(*controller))
      findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace hook
