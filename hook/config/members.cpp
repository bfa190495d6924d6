#include "hook/config/reader.hpp"

#include "base/text.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

void read_permissions(ConfigReader& reader, const ConfigValue& value, std::uint32_t& mode) {
  constexpr const char* kRemedy = "write an octal text up to 0777, in quotes: \"0666\"";
  if (value.json().is_number()) {
    // Only a text is accepted, because JSON has no octal numbers: 0666 is not valid JSON, and the decimal number 666 is
    // 01232 in octal.
    reader.error(value, "is a decimal number", kRemedy);
    return;
  }
  reader.text_into(mode, permissions, "is not a set of permissions", kRemedy)(value);
}

void read_nodes(ConfigReader& reader, const ConfigValue& value, NodeOptions& nodes) {
  constexpr std::uint32_t kLastId = UINT32_MAX - 1;  // chown(2) reads (uid_t)-1 as "unchanged"
  // umad and issm affect the whole fabric. An administrator may enable them, but always gets a warning.
  const auto risk = [&](bool& target, const char* message, const char* remedy) {
    return [&reader, &target, message, remedy](const ConfigValue& v) {
      reader.flag_into(target)(v);
      if (v.json() == true) reader.warning(v, message, remedy);
    };
  };
  reader.members(value,
                 {{"rdma_cm", reader.flag_into(nodes.rdma_cm)},
                  {"umad", risk(nodes.umad, "every container with an HCA can send management datagrams to the fabric",
                                "remove it unless containers run fabric tools such as ibstat or ibnetdiscover")},
                  {"issm", risk(nodes.issm, "every container with an HCA can be a subnet manager of the fabric",
                                "remove it unless a subnet manager runs in a container")},
                  {"mode", reader.into(nodes.mode, read_permissions)},
                  {"uid", reader.number_into(nodes.uid, 0, kLastId)},
                  {"gid", reader.number_into(nodes.gid, 0, kLastId)}});
}

// Returns whether the text is an absolute path, or a name to search in PATH.
bool is_program(std::string_view text) {
  return text.starts_with('/') ? text.size() > 1 : text.find('/') == std::string_view::npos;
}

void read_runtimes(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& runtimes) {
  reader.texts_into(runtimes, if_is(is_program), "is neither a name nor an absolute path",
                    "write \"runc\", or \"/usr/sbin/runc\"")(value);
  if (runtimes.empty()) reader.error(value, "has no valid runtime", "write [\"runc\", \"crun\"]");
}

void read_runtime(ConfigReader& reader, const ConfigValue& value, RuntimeOptions& runtime) {
  const auto is_path = [](std::string_view text) { return text.starts_with('/'); };
  reader.members(value, {{"runtimes", reader.into(runtime.runtimes, read_runtimes)},
                         {"hook", reader.text_into(runtime.hook, if_is(is_path), "is not an absolute path",
                                                   "write \"/usr/local/bin/rdma-hook\"")},
                         {"engine", reader.word_into(runtime.engine, kEngineWords)},
                         {"allow_system_calls", reader.flag_into(runtime.allow_system_calls)}});
}

void read_nri(ConfigReader& reader, const ConfigValue& value, NriOptions& nri) {
  reader.members(value, {{"evict_ungranted", reader.flag_into(nri.evict_ungranted)}});
}

// A node's number has at most 32 bits, so that the product of this number and the size of a slice has at most 64 bits.
constexpr std::uint64_t kMostNodes = UINT32_MAX;

// Reads an object of node names and patterns.
NodeIndex read_node_names(ConfigReader& reader, const ConfigValue& value) {
  NodeIndex index{NodeIndex::By::kNames};
  std::map<std::uint64_t, std::string> taken;
  for (const auto& [name, number] : reader.entries(value)) {
    if (name == "$comment") continue;
    const auto lowest = reader.number(number, 0, kMostNodes);
    if (!is_node_pattern(name)) {
      reader.error(number, fmt::format("`{}` is neither a node's name nor a pattern", shown(name)),
                   "write letters, digits, `.`, `_` and `-`, and in a pattern one `#` or one `%`");
    } else if (lowest && name.find_first_of("#%") == std::string::npos) {
      if (const auto [other, is_new] = taken.emplace(*lowest, name); !is_new)
        reader.error(
            number,
            fmt::format("`{}` has this number too: both would allocate the same addresses", shown(other->second)),
            "give each node its own number");
    }
    if (lowest) index.names.emplace(name, *lowest);
  }
  if (value.json().size() == value.json().count("$comment"))
    reader.error(value, "has no node", "write {\"gpu-a\": 0, \"gpu-b\": 1}");
  return index;
}

void read_node_index(ConfigReader& reader, const ConfigValue& value, std::optional<NodeIndex>& index) {
  if (value.json().is_number()) {
    if (const auto number = reader.number(value, 0, kMostNodes)) index = NodeIndex{NodeIndex::By::kNumber, *number};
    return;
  }
  if (value.json().is_object()) {
    index = read_node_names(reader, value);
    return;
  }
  const auto parse = [](const std::string& text) -> std::optional<NodeIndex> {
    if (text == "address") return NodeIndex{NodeIndex::By::kAddress};
    if (text == "NODE_NAME") return NodeIndex{NodeIndex::By::kName};
    if (text.starts_with('/') && text.size() > 1) return NodeIndex{NodeIndex::By::kFile, 0, text};
    return std::nullopt;
  };
  constexpr const char* kWrong = "is not a source of the node's number";
  constexpr const char* kRemedy =
      "write a number, \"address\", \"NODE_NAME\", an object of node names, or the absolute path of a file with the "
      "number";
  // Has its own remedy: that of the reader for a value that is no text, quotes around the value, would not help.
  if (!value.json().is_string()) return reader.error(value, kWrong, kRemedy);
  const auto parsed = reader.parsed(value, parse, kWrong, kRemedy);
  if (parsed) index = parsed;
}

void read_device_plugin(ConfigReader& reader, const ConfigValue& value, DevicePluginOptions& plugin) {
  constexpr std::uint64_t kHour = 3600;
  reader.members(value, {{"cdi", reader.flag_into(plugin.cdi)},
                         {"poll_seconds", reader.number_into(plugin.poll_seconds, 1, kHour)}});
}

void read_memlock(ConfigReader& reader, const ConfigValue& value, std::optional<std::uint64_t>& memlock) {
  const Json& json = value.json();
  // null is a valid value here: the container keeps its own limit.
  if (json.is_null()) {
    memlock.reset();
  } else if (json.is_number_unsigned() && json.get<std::uint64_t>() > 0) {
    memlock = json.get<std::uint64_t>();
  } else if (json == "unlimited") {
    memlock = UINT64_MAX;
  } else if (const auto bytes = json.is_string() ? bytes_of(json.get_ref<const std::string&>()) : std::nullopt) {
    memlock = bytes;
  } else {
    reader.error(value, fmt::format("`{}` is not a limit", base::one_line(json.dump(-1, ' ', true)).substr(0, 64)),
                 "write \"unlimited\", bytes (67108864 or \"64MiB\"), or null for the container's own limit");
  }
}

void read_netdev_names(ConfigReader& reader, const ConfigValue& value, std::string& pattern) {
  const auto text = reader.text(value);
  if (!text) return;
  if (const auto problem = problem_of_netdev_pattern(*text)) {
    reader.error(value, fmt::format("`{}` {}", shown(*text), *problem), "write a short prefix and %d: \"net%d\"");
  } else {
    pattern = *text;
  }
}

void read_default_devices(ConfigReader& reader, const ConfigValue& value, std::optional<std::string>& devices) {
  const auto text = reader.text(value);
  if (!text) return;
  constexpr std::size_t kLongestMessage = 200;  // the message can quote the whole text
  // The request is parsed here only to report an error now, not at the start of each container.
  const auto selection = parse_selection(*text, "default request");
  if (selection) {
    devices = *text;
  } else {
    const std::string& message = selection.error().message;
    reader.error(value, message.substr(0, kLongestMessage) + (message.size() > kLongestMessage ? "..." : ""),
                 selection.error().hint);
  }
}

}  // namespace

void read_config_members(ConfigReader& reader, Config& config) {
  const auto namespaces = [&](std::vector<std::string>& globs) {
    return reader.texts_into(globs, if_is(is_namespace_glob), "is not a Kubernetes namespace",
                             "write a namespace or a glob of lower-case letters, digits, - and *: \"team-a\", "
                             "\"train-*\"");
  };
  reader.members(
      reader.root(),
      {{"pools", reader.into(config.pools, read_pools)},
       {"networks", reader.into(config.networks, read_networks)},
       {"rails", reader.into(config.rails, read_rails)},
       {"node_index", reader.into(config.node_index, read_node_index)},
       {"nodes", reader.into(config.nodes, read_nodes)},
       {"runtime", reader.into(config.runtime, read_runtime)},
       {"nri", reader.into(config.nri, read_nri)},
       {"device_plugin", reader.into(config.device_plugin, read_device_plugin)},
       {"memlock", reader.into(config.memlock, read_memlock)},
       {"ipc_lock", reader.flag_into(config.ipc_lock)},
       {"sysfs_view", reader.flag_into(config.sysfs_view)},
       {"ipam_allowed", reader.texts_into(config.ipam_allowed, if_is(is_config_name), "is not the name of a CNI plugin",
                                          "write the plugin's file name without its directory: "
                                          "\"whereabouts\"")},
       {"lend_from", reader.text_into(config.lend_from, if_is(is_absolute_path), "is not an absolute path",
                                      "write the directory of the vendor's libibverbs and providers")},
       {"topology_file", reader.text_into(config.topology_file, if_is(is_absolute_path), "is not an absolute path",
                                          "write the path of NCCL's XML file")},
       {"netdev_names", reader.into(config.netdev_names, read_netdev_names)},
       {"annotations_may_request", namespaces(config.annotations_may_request)},
       {"env_may_request", reader.flag_into(config.env_may_request)},
       {"trusted_annotations", reader.words_into(config.trusted_annotations, Config().trusted_annotations)},
       {"default_devices", reader.into(config.default_devices, read_default_devices)},
       {"namespacesInclude", namespaces(config.namespaces_include)},
       {"namespacesExclude", namespaces(config.namespaces_exclude)}});
}

}  // namespace hook
