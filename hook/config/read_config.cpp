#include "hook/config/read_config.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "fabric/library_variables.hpp"
#include "hook/config/reader.hpp"

namespace hook {
namespace {

using Problems = std::vector<ConfigProblem>;

// Returns a problem at the place of a value in the last text that has it: later texts override earlier ones.
ConfigProblem problem_at(const std::vector<ConfigReader>& readers, const std::string& pointer, std::string message,
                         std::string remedy) {
  // If no text has the value, the problem names the last file and no line.
  ConfigProblem problem{readers.back().file(), 0, std::move(message), std::move(remedy), true};
  for (const ConfigReader& reader : readers) {
    const auto line = reader.line_of(pointer);
    if (!line) continue;
    problem.file = reader.file();
    problem.line = *line;
  }
  return problem;
}

// A "resource" of shared HCAs needs a limit: rdma-device-plugin offers each HCA to Kubernetes as that many devices.
void check_resource(const std::vector<ConfigReader>& readers, const Config& config, std::size_t index,
                    Problems& problems) {
  const Pool& pool = config.pools[index];
  const auto network = pool.network ? config.networks.find(*pool.network) : config.networks.end();
  const Mode mode = default_mode(pool, network == config.networks.end() ? nullptr : &network->second);
  if (!pool.resource || mode == Mode::kExclusive || pool.limits.contains(mode)) return;
  problems.push_back(
      problem_at(readers, fmt::format("/pools/{}/resource", index),
                 fmt::format("`pools[{}].resource`: no limit of containers per HCA in mode {}", index, to_string(mode)),
                 fmt::format("add \"limits\": {{\"{}\": ...}} or \"modes\": [\"exclusive\"]", to_string(mode))));
}

bool allows(const Pool& pool, Mode mode) {
  return std::ranges::find(pool.modes, mode) != pool.modes.end();
}

// Returns whether a container can have a child netdev of the network over the pool's HCAs.
bool makes_children(const Pool& pool, const Network& network) {
  const auto shares = [&](Mode mode) { return network.mode ? *network.mode == mode : allows(pool, mode); };
  return shares(Mode::kShared) || shares(Mode::kSharedMulti);
}

// Returns the reason and the remedy if no container could use this pool with this network; nullopt: a container could.
std::optional<std::pair<std::string, std::string>> misfit(const Pool& pool, const Network& network) {
  // The pool names a network that accepts HCAs only from another pool.
  if (network.pool && *network.pool != pool.name)
    return std::pair(fmt::format("network `{}` uses only HCAs of pool `{}`", network.name, *network.pool),
                     "write another network in the pool, or remove the network's \"pool\"");
  if (network.mode && !allows(pool, *network.mode))
    return std::pair(fmt::format("network `{}` has mode {}, which pool `{}` does not allow", network.name,
                                 to_string(*network.mode), pool.name),
                     "add it to the pool's \"modes\" or change the network's \"mode\"");
  // Without the node, the link layer of a pool's HCAs is known only if the pool selects a single one.
  const auto& types = pool.selectors.link_types;
  const auto only = [&](std::string_view type) { return types.size() == 1 && types.front() == type; };
  if (makes_children(pool, network) && only("infiniband") && network.child == "macvlan")
    return std::pair(fmt::format("network `{}` has macvlan children, which InfiniBand does not support", network.name),
                     "write \"child\": \"ipoib\" in the network");
  if (makes_children(pool, network) && only("ether") && network.child == "ipoib")
    return std::pair(fmt::format("network `{}` has ipoib children, which only InfiniBand supports", network.name),
                     "write \"child\": \"macvlan\" or \"ipvlan\" in the network");
  return std::nullopt;
}

// Checks references between pools and networks, which can be in different texts.
void check_pools(const std::vector<ConfigReader>& readers, const Config& config, Problems& problems) {
  for (std::size_t i = 0; i < config.pools.size(); ++i) {
    const Pool& pool = config.pools[i];
    check_resource(readers, config, i, problems);
    if (!pool.network) continue;
    const std::string pointer = fmt::format("/pools/{}/network", i);
    const auto network = config.networks.find(*pool.network);
    if (network == config.networks.end()) {
      problems.push_back(problem_at(readers, pointer,
                                    fmt::format("`pools[{}].network`: network `{}` does not exist", i, *pool.network),
                                    "add it to \"networks\" or correct the name"));
    } else if (auto why = misfit(pool, network->second)) {
      problems.push_back(
          problem_at(readers, pointer, fmt::format("`pools[{}].network`: {}", i, why->first), std::move(why->second)));
    } else if (default_mode(pool, &network->second) == Mode::kHca) {
      // A pool with a network is usually meant for containers with netdevs. This is only a warning, because a container
      // can request another mode.
      problems.push_back(
          problem_at(readers, pointer,
                     fmt::format("`pools[{}].network`: containers without a mode get hca, which has no netdev", i),
                     "add a \"mode\" to the network, or begin the pool's \"modes\" with another mode"));
      problems.back().is_error = false;
    }
  }
}

void check_networks(const std::vector<ConfigReader>& readers, const Config& config, Problems& problems) {
  for (const auto& [name, network] : config.networks) {
    if (!network.pool) continue;
    const auto pool = std::ranges::find_if(
        config.pools, [&, &wanted = *network.pool](const Pool& one) { return one.name == wanted; });
    const std::string pointer = fmt::format("/networks/{}/pool", name);
    const std::string place = fmt::format("`networks.{}.pool`: ", name);
    if (pool == config.pools.end()) {
      problems.push_back(problem_at(readers, pointer, place + fmt::format("pool `{}` does not exist", *network.pool),
                                    "add it to \"pools\" or correct the name"));
    } else if (pool->network != name) {  // if the pool names this network, check_pools() reports it
      if (auto why = misfit(*pool, network))
        problems.push_back(problem_at(readers, pointer, place + why->first, std::move(why->second)));
    }
  }
}

// Checks "macs" and "guids". "node_index": "address" cannot select a node's slice of such a range, because the range
// has no IP addresses. Overlapping ranges would give two VFs the same value.
void check_vf_ranges(const std::vector<ConfigReader>& readers, const Config& config, Problems& problems) {
  std::vector<std::pair<std::string, const VfRange*>> before;
  for (const auto& [name, network] : config.networks) {
    for (const auto* range : {&network.vf_macs, &network.vf_guids}) {
      if (!*range) continue;
      const char* member = (*range)->kind == VfRange::Kind::kMac ? "macs" : "guids";
      const std::string pointer = fmt::format("/networks/{}/vf/{}", name, member);
      const std::string place = fmt::format("`networks.{}.vf.{}`: ", name, member);
      if ((*range)->per_node && !config.node_index) {
        problems.push_back(problem_at(readers, pointer, place + "\"node_index\" is missing",
                                      "add \"node_index\": \"NODE_NAME\" or another source of the node's number"));
      } else if ((*range)->per_node && config.node_index->by == NodeIndex::By::kAddress) {
        problems.push_back(problem_at(readers, pointer,
                                      place + "\"node_index\": \"address\" does not identify a slice of this range",
                                      "write \"node_index\" as \"NODE_NAME\" or as an object of node names"));
      }
      for (const auto& [other, earlier] : before) {
        const bool shares =
            earlier->kind == (*range)->kind && earlier->from <= (*range)->to && (*range)->from <= earlier->to;
        // The same range in two networks is one range: its values are allocated once.
        if (!shares || *earlier == **range) continue;
        problems.push_back(problem_at(readers, pointer,
                                      place + fmt::format("overlaps {} of network `{}`", to_string(*earlier), other),
                                      "write the same range in both networks, or ranges that do not overlap"));
      }
      before.emplace_back(name, &**range);
    }
  }
}

void check_slices(const std::vector<ConfigReader>& readers, const Config& config, Problems& problems) {
  if (config.node_index) return;
  for (const auto& [name, network] : config.networks) {
    for (std::size_t i = 0; i < network.ranges.size(); ++i) {
      if (!network.ranges[i].per_node) continue;
      problems.push_back(
          problem_at(readers, fmt::format("/networks/{}/addresses/{}/per_node", name, i),
                     fmt::format("`networks.{}.addresses[{}].per_node`: \"node_index\" is missing", name, i),
                     "add \"node_index\": \"address\" or another source of the node's number"));
      return;
    }
  }
}

constexpr std::pair<const char*, const char*> kNetworkKeys[] = {
    // the keys that only the node's own files may have, with their effects; "ipam" has its own function
    {"ipam_dir", "names a program that root of the node executes, and its files"},
    {"take_node_netdevs", "can take the node off the network"},
};
constexpr std::string_view kNodeFiles = "/etc/rdma-init/";
constexpr const char* kRemedy = "move it to the node's own /etc/rdma-init/conf.d/*.json";

// Returns whether only the node's own files may have this "node_index". The cluster's file may have "address",
// "NODE_NAME", an object of node names or a file directly in /etc/rdma-init, because these give a different number on
// each node.
bool is_nodes_own_index(const Json& index) {
  if (index.is_object()) return false;
  if (!index.is_string()) return true;
  const std::string_view text = index.get_ref<const std::string&>();
  if (!text.starts_with('/')) return false;
  // Only root writes directly in /etc/rdma-init. Another user could write the file of a path with "..", in a
  // subdirectory or in another directory.
  const bool has_name = text.size() > kNodeFiles.size();
  const std::string_view name = text.substr(text.find_last_of('/') + 1);
  return !has_name || !text.starts_with(kNodeFiles) || text.find('/', kNodeFiles.size()) != std::string_view::npos ||
         name == "." || name == "..";
}

// Refuses the key in `owner`, the object that may have it.
bool refuse_key(ConfigReader& reader, const ConfigValue& owner, const char* key, const char* effect) {
  const auto value = ConfigReader::find(owner, key);
  if (value) reader.error(*value, fmt::format("{}: only the node's own files may set it", effect), kRemedy);
  return value.has_value();
}

// owner: a pool or a network.
bool refuse_variables(ConfigReader& reader, const ConfigValue& owner) {
  bool found = false;
  const auto env = ConfigReader::find(owner, "env");
  if (!env || !env->json().is_object()) return found;
  for (const auto& [name, value] : reader.entries(*env)) {
    if (fabric::is_wire_variable(name)) continue;
    reader.error(value, "may load or write files in every container: only the node's own files may set it", kRemedy);
    found = true;
  }
  return found;
}

bool refuse_pool_keys(ConfigReader& reader, const ConfigValue& pools) {
  bool found = false;
  if (!pools.json().is_array()) return found;
  for (const ConfigValue& pool : reader.elements(pools))
    found = (pool.json().is_object() && refuse_variables(reader, pool)) || found;
  return found;
}

// Members of "ipam" that select addresses, at any depth. All other members are refused in the cluster's file:
// host-local's dataDir and resolvConf, whereabouts' log_file and kubernetes.kubeconfig, and nv-ipam's confDir and
// logFile are paths. Sources: host-local's README (CNI plugins 1.7), whereabouts' doc/extended-configuration.md (0.9),
// nv-ipam's README (0.3).
constexpr std::string_view kIpamData[] = {"type",
                                          "ranges",
                                          "subnet",
                                          "rangeStart",
                                          "rangeEnd",
                                          "gateway",
                                          "routes",
                                          "dst",
                                          "gw",
                                          "range",
                                          "ipRanges",
                                          "range_start",
                                          "range_end",
                                          "exclude",
                                          "network_name",
                                          "poolName",
                                          "poolType",
                                          "enable_overlapping_ranges",
                                          "sleep_for_race",
                                          "node_slice_size"};

// Returns the first member of an "ipam" object that is not in kIpamData; nullopt: none.
std::optional<std::string> foreign_ipam_member(const Json& ipam) {
  if (!ipam.is_structured()) return std::nullopt;
  for (const auto& [name, member] : ipam.items()) {
    if (ipam.is_object() && std::ranges::find(kIpamData, name) == std::end(kIpamData)) return name;
    if (auto found = foreign_ipam_member(member)) return found;
  }
  return std::nullopt;
}

// Refuses "ipam" unless the node allows its plugin and all its members only select addresses.
bool refuse_ipam(ConfigReader& reader, const ConfigValue& network, const std::vector<std::string>& allowed) {
  const auto ipam = network.json().is_object() ? ConfigReader::find(network, "ipam") : std::nullopt;
  if (!ipam) return false;
  const Json type = ipam->json().is_object() ? ipam->json().value("type", Json()) : Json();
  const bool is_allowed = type.is_string() && std::ranges::find(allowed, type.get<std::string>()) != allowed.end();
  if (!is_allowed) {
    reader.error(*ipam, "names a program that root of the node executes: only the node's own files may allow it",
                 "add the plugin's name to \"ipam_allowed\" in the node's own /etc/rdma-init/conf.d/*.json, or move "
                 "\"ipam\" there");
    return true;
  }
  const auto foreign = foreign_ipam_member(ipam->json());
  if (foreign)
    reader.error(*ipam,
                 fmt::format("`{}` may name a file of the node: only the node's own files may set it", shown(*foreign)),
                 kRemedy);
  return foreign.has_value();
}

bool refuse_network_keys(ConfigReader& reader, const ConfigValue& networks, const std::vector<std::string>& allowed) {
  bool found = false;
  if (!networks.json().is_object()) return found;
  for (const auto& [name, network] : reader.entries(networks)) {
    found = refuse_ipam(reader, network, allowed) || found;
    for (const auto& [key, effect] : kNetworkKeys)
      found = refuse_key(reader, network, key, effect) || found;
    found = (network.json().is_object() && refuse_variables(reader, network)) || found;
  }
  return found;
}

// Returns "ipam_allowed" of the node's own files. Problems of these files are reported when they are read.
std::vector<std::string> ipam_allowed_by(const std::vector<ConfigText>& texts) {
  Config own;
  Problems ignored;
  for (const ConfigText& text : texts) {
    ConfigReader reader(text, ignored);
    if (!text.is_clusters && reader.parse_document() && ConfigReader::find(reader.root(), "ipam_allowed"))
      read_config_members(reader, own);
  }
  return std::move(own.ipam_allowed);
}

}  // namespace

bool ParsedConfig::ok() const {
  return !first_error(problems);
}

ParsedConfig parse_config(const std::vector<ConfigText>& texts) {
  ParsedConfig parsed;
  // All readers stay, because later checks find the line of a value in any text.
  std::vector<ConfigReader> readers;
  for (const ConfigText& text : texts) {
    ConfigReader& reader = readers.emplace_back(text, parsed.problems);
    if (!reader.parse_document()) continue;
    // The values of a refused text must not take effect in a program that continues in spite of errors, such as
    // `rdma-hook doctor`.
    Config refused;
    const bool is_refused = text.is_clusters && refuse_node_keys(reader, ipam_allowed_by(texts));
    read_config_members(reader, is_refused ? refused : parsed.config);
  }
  // A pool or network with an error may be missing here, so references are checked only if all texts are without
  // errors.
  if (readers.empty() || !parsed.ok()) return parsed;
  check_pools(readers, parsed.config, parsed.problems);
  check_networks(readers, parsed.config, parsed.problems);
  check_slices(readers, parsed.config, parsed.problems);
  check_vf_ranges(readers, parsed.config, parsed.problems);
  return parsed;
}

std::string config_summary(const std::vector<ConfigText>& texts, const Config& config) {
  if (texts.empty())
    return "no configuration: one pool of all HCAs, device nodes only, annotations may request with runc and Docker";
  std::vector<std::string> pools;
  for (const Pool& pool : config.pools) {
    std::vector<std::string> modes;
    for (const Mode mode : pool.modes)
      modes.emplace_back(to_string(mode));
    pools.push_back(fmt::format("{} ({}{})", base::printable(pool.name), base::join(modes, ", "),
                                pool.counts_one_kind() ? "; counts HCAs of one rate and link layer" : ""));
  }
  return fmt::format("{} file{}; pools: {}; {} network{}; annotations may request in: {}", texts.size(),
                     texts.size() == 1 ? "" : "s", pools.empty() ? "all HCAs" : base::join(pools, ", "),
                     config.networks.size(), config.networks.size() == 1 ? "" : "s",
                     config.annotations_may_request.empty()
                         ? "no namespace (runc and Docker always)"
                         : base::printable(base::join(config.annotations_may_request, ", ")));
}

bool refuse_node_keys(ConfigReader& reader, const std::vector<std::string>& ipam_allowed) {
  bool found = refuse_key(reader, reader.root(), "runtime", "names programs that root of the node executes");
  if (const auto index = ConfigReader::find(reader.root(), "node_index"); index && is_nodes_own_index(index->json())) {
    reader.error(*index,
                 index->json().is_string()
                     ? "names a file outside of /etc/rdma-init: only the node's own files may set it"
                     : "is one number for all nodes, which would allocate the same addresses",
                 "write \"address\", \"NODE_NAME\", an object of node names or \"/etc/rdma-init/node_index\", a file "
                 "with the number of each node");
    found = true;
  }
  found = refuse_key(reader, reader.root(), "lend_from", "names libraries that containers execute") || found;
  found = refuse_key(reader, reader.root(), "ipam_allowed", "allows programs that root of the node executes") || found;
  found = refuse_key(reader, reader.root(), "topology_file", "names a file that containers can read") || found;
  if (const auto pools = ConfigReader::find(reader.root(), "pools")) found = refuse_pool_keys(reader, *pools) || found;
  const auto networks = ConfigReader::find(reader.root(), "networks");
  return (networks && refuse_network_keys(reader, *networks, ipam_allowed)) || found;
}

}  // namespace hook
