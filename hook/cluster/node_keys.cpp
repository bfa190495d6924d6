#include "hook/cluster/node_keys.hpp"

#include <array>
#include <string_view>

#include "hook/base/json/json.hpp"

namespace hook {
namespace {

struct NetworkKey {
  const char* name;
  const char* effect;
};
constexpr std::array<NetworkKey, 3> kNetworkKeys = {{
    {"ipam", "says which program the node's root executes, and on what"},
    {"ipam_dir", "says which program the node's root executes, and on what"},
    {"take_node_netdevs", "can take the node off the network"},
}};
constexpr std::string_view kNodeFiles = "/etc/rdma-init/";

// "address", "NODE_NAME", and a file that is right below /etc/rdma-init are the same text and another number on each
// node.
bool is_nodes_own_index(const Json& index) {
  if (!index.is_string()) return true;
  const std::string_view text = index.get_ref<const std::string&>();
  if (!text.starts_with('/')) return false;
  const bool has_name = text.size() > kNodeFiles.size();
  const std::string_view name = text.substr(text.find_last_of('/') + 1);
  return !has_name || !text.starts_with(kNodeFiles) || text.find('/', kNodeFiles.size()) != std::string_view::npos ||
         name == "." || name == "..";
}

const Json* networks_of(const Json& document) {
  const Json* const networks = member(document, "networks");
  return networks && networks->is_object() ? networks : nullptr;
}

}  // namespace

std::vector<ConfigProblem> node_keys_in(const ConfigText& text) {
  std::vector<ConfigProblem> problems;
  const auto document = parse_json(text.text, text.file);
  if (!document || !document->is_object()) return problems;
  JsonLines lines;
  const auto note = [&](const std::string& pointer, const std::string& message) {
    if (lines.empty()) lines = json_lines(text.text);
    const auto line = lines.find(pointer);
    problems.push_back({text.file, line == lines.end() ? 0 : line->second, message,
                        "remove it here, and write it into the node's own /etc/rdma-init/conf.d/*.json"});
  };
  if (member(*document, "runtime"))
    note("/runtime", "`runtime` names programs that the node's root executes: it is the node's own, never a cluster's");
  if (const Json* const index = member(*document, "node_index"); index && is_nodes_own_index(*index)) {
    note("/node_index", index->is_string()
                            ? "`node_index` names a file outside of /etc/rdma-init: it is the node's own"
                            : "`node_index` is one number for all nodes, which would give the same addresses");
    problems.back().remedy =
        "write \"address\", \"NODE_NAME\" or \"/etc/rdma-init/node_index\", a file that each node has of its own";
  }
  const Json* const networks = networks_of(*document);
  if (!networks) return problems;
  for (const auto& [name, network] : networks->items()) {
    for (const auto& [key, effect] : kNetworkKeys) {
      if (!member(network, key)) continue;
      constexpr std::size_t kShown = 64;
      note(fmt::format("/networks/{}/{}", escape_pointer(name), key),
           fmt::format("`networks.{}.{}` {}: it is the node's own, never a cluster's", shown(name, kShown), key,
                       effect));
    }
  }
  return problems;
}

Json with_node_keys(Json cluster, const Json& own) {
  if (const Json* const runtime = member(own, "runtime")) cluster["runtime"] = *runtime;
  if (const Json* const index = member(own, "node_index"); index && is_nodes_own_index(*index))
    cluster["node_index"] = *index;
  const Json* const networks = networks_of(own);
  if (!networks) return cluster;
  for (const auto& [name, network] : networks->items()) {
    for (const auto& [key, effect] : kNetworkKeys) {
      const Json* const value = member(network, key);
      if (!value) continue;
      if (!cluster.contains("networks")) cluster["networks"] = Json::object();
      Json& into = cluster["networks"];
      if (!into.is_object()) return cluster;  // which is no configuration, and refused
      if (!into.contains(name)) {
        into[name] = network;
      } else if (into[name].is_object()) {
        into[name][key] = *value;
      }
    }
  }
  return cluster;
}

}  // namespace hook
