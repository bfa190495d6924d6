#include "hook/config/config.hpp"

#include <algorithm>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace hook {

Mode default_mode(const Pool& pool, const Network* network) {
  return network && network->mode ? *network->mode : pool.modes.front();
}

bool has_entry(const std::vector<RailEntry>& rails, fabric::Selector::Kind kind) {
  return std::ranges::any_of(rails, [&](const RailEntry& entry) { return entry.selector.kind == kind; });
}

bool is_of_names(const std::vector<RailEntry>& rails) {
  return std::ranges::all_of(rails, [](const RailEntry& entry) {
    const bool is_glob = entry.selector.pattern.find('*') != std::string::npos;
    return entry.selector.kind == fabric::Selector::Kind::kName && !is_glob && !entry.plane;
  });
}

bool has_planes(const std::vector<RailEntry>& rails) {
  return std::ranges::any_of(rails, [](const RailEntry& entry) { return entry.plane.has_value(); });
}

bool limits_rdma(const Config& config) {
  return std::ranges::any_of(config.pools, [](const Pool& pool) { return is_limited(pool.rdma_limits); });
}

// A mode with a limit of 1 is not shared: only one owner at a time can use the HCA.
bool is_shared(const Pool& pool) {
  return std::ranges::any_of(pool.modes, [&](Mode mode) {
    const auto limit = pool.limits.find(mode);
    return mode != Mode::kExclusive && (limit == pool.limits.end() || limit->second > 1);
  });
}

// An attribute with a range gets 0 here, so that the caller sees that the attribute will be set.
VfAttributes set_attributes(const Network& network) {
  VfAttributes attributes = network.vf;
  if (network.vf_macs) attributes.mac = MacAddress{};
  if (network.vf_guids) attributes.node_guid = attributes.port_guid = 0;
  return attributes;
}

bool runs_ipam_plugins(const Config& config) {
  return std::ranges::any_of(config.networks, [](const auto& entry) { return entry.second.ipam.has_value(); });
}

const ConfigProblem* first_error(const std::vector<ConfigProblem>& problems) {
  const auto found = std::ranges::find(problems, true, &ConfigProblem::is_error);
  return found == problems.end() ? nullptr : &*found;
}

std::string to_string(const ConfigProblem& problem) {
  return fmt::format("{}:{} {}: {}; remedy: {}", base::printable(problem.file),
                     problem.line == 0 ? "" : fmt::format("{}:", problem.line), problem.is_error ? "error" : "warning",
                     problem.message, problem.remedy);
}

Json problems_json(const std::vector<ConfigProblem>& problems) {
  Json list = Json::array();
  for (const ConfigProblem& problem : problems) {
    list.push_back({{"file", problem.file},
                    {"line", problem.line == 0 ? Json() : Json(problem.line)},
                    {"severity", problem.is_error ? "error" : "warning"},
                    {"message", problem.message},
                    {"remedy", problem.remedy}});
  }
  return list;
}

ConfigPaths config_paths_below(const std::string& root) {
  // A missing file is no error, because these paths are the defaults and not those of --config.
  return {root + kConfigPath, root + kConfigDropIns, false, root + kClusterConfigPath};
}

}  // namespace hook
