#include "hook/config/node_keys.hpp"

#include <array>
#include <string_view>

#include "fabric/text.hpp"

namespace hook {
namespace {

struct NetworkKey {
  const char* name;
  const char* effect;
};
constexpr std::array<NetworkKey, 3> kNetworkKeys = {{
    {"ipam", "says which program the node's root executes, and on which files"},
    {"ipam_dir", "says which program the node's root executes, and on which files"},
    {"take_node_netdevs", "can take the node off the network"},
}};
constexpr std::string_view kNodeFiles = "/etc/rdma-init/";
constexpr const char* kRemedy = "remove it here, and write it into the node's own /etc/rdma-init/conf.d/*.json";

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

bool refuse_network_keys(ConfigReader& reader, const ConfigValue& networks) {
  bool found = false;
  if (!networks.json().is_object()) return found;
  for (const auto& [name, network] : reader.entries(networks)) {
    for (const auto& [key, effect] : kNetworkKeys) {
      const auto value = ConfigReader::find(network, key);
      if (!value) continue;
      reader.error(*value, fmt::format("{}: it is the node's own, never a cluster's", effect), kRemedy);
      found = true;
    }
  }
  return found;
}

}  // namespace

bool refuse_node_keys(ConfigReader& reader) {
  bool found = false;
  if (const auto runtime = ConfigReader::find(reader.root(), "runtime")) {
    reader.error(*runtime, "names programs that the node's root executes: it is the node's own, never a cluster's",
                 kRemedy);
    found = true;
  }
  if (const auto index = ConfigReader::find(reader.root(), "node_index"); index && is_nodes_own_index(index->json())) {
    reader.error(*index,
                 index->json().is_string() ? "names a file outside of /etc/rdma-init: it is the node's own"
                                           : "is one number for all nodes, which would give the same addresses",
                 "write \"address\", \"NODE_NAME\" or \"/etc/rdma-init/node_index\", a file that each node has of its "
                 "own");
    found = true;
  }
  const auto networks = ConfigReader::find(reader.root(), "networks");
  return (networks && refuse_network_keys(reader, *networks)) || found;
}

}  // namespace hook
