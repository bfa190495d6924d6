#include "hook/config/config.hpp"

#include <algorithm>

#include "fabric/text.hpp"

namespace hook {

Mode default_mode(const Pool& pool, const Network* network) {
  return network && network->mode ? *network->mode : pool.modes.front();
}

bool limits_rdma(const Config& config) {
  return std::any_of(config.pools.begin(), config.pools.end(),
                     [](const Pool& pool) { return is_limited(pool.rdma_limits); });
}

bool is_shared(const Pool& pool) {
  return std::any_of(pool.modes.begin(), pool.modes.end(), [&](Mode mode) {
    const auto limit = pool.limits.find(mode);
    return mode != Mode::kExclusive && (limit == pool.limits.end() || limit->second > 1);
  });
}

VfAttributes set_attributes(const Network& network) {
  VfAttributes attributes = network.vf;
  if (network.vf_macs) attributes.mac = MacAddress{};
  if (network.vf_guids) attributes.node_guid = attributes.port_guid = 0;
  return attributes;
}

bool runs_ipam_plugins(const Config& config) {
  return std::any_of(config.networks.begin(), config.networks.end(),
                     [](const auto& entry) { return entry.second.ipam.has_value(); });
}

std::string to_string(const ConfigProblem& problem) {
  return fmt::format("{}:{} {}: {}; {}", fabric::printable(problem.file),
                     problem.line == 0 ? "" : fmt::format("{}:", problem.line), problem.is_error ? "error" : "warning",
                     problem.message, problem.remedy);
}

ConfigPaths config_paths_below(const std::string& root) {
  return {root + kConfigPath, root + kConfigDropIns, false, root + kClusterConfigPath};
}

}  // namespace hook
