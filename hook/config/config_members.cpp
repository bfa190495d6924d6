#include "hook/config/config_members.hpp"

#include "hook/config/config_values.hpp"
#include "hook/config/wish.hpp"

namespace hook {
namespace {

void read_rails(ConfigReader& reader, const ConfigValue& value, Config& config) {
  reader.texts(value, config.rails, [&](const ConfigValue& element, const std::string& text) {
    if (is_config_name(text)) return true;
    reader.error(element, fmt::format("`{}` is no name of an HCA", shown(text)),
                 "write names as `rdma link` shows them, e.g. \"mlx5_0\"");
    return false;
  });
}

void read_permissions(ConfigReader& reader, const ConfigValue& value, NodeOptions& nodes) {
  constexpr const char* kRemedy = "write an octal text up to 0777, in quotes: \"0666\"";
  if (value.json().is_number()) {
    // 0666 is no JSON, and 666 would be 01232.
    reader.error(value, "a number, which would be read as decimal", kRemedy);
    return;
  }
  const auto text = reader.text(value);
  if (!text) return;
  const auto mode = permissions(*text);
  if (mode) {
    nodes.mode = *mode;
  } else {
    reader.error(value, fmt::format("`{}` are no permissions", shown(*text)), kRemedy);
  }
}

void read_id(ConfigReader& reader, const ConfigValue& value, std::uint32_t& id) {
  // (uid_t)-1 means "leave it" to chown.
  if (const auto number = reader.number(value, 0, UINT32_MAX - 1)) id = static_cast<std::uint32_t>(*number);
}

void read_nodes(ConfigReader& reader, const ConfigValue& value, NodeOptions& nodes) {
  const auto risk = [&](bool& target, const char* message, const char* remedy) {
    return [&reader, &target, message, remedy](const ConfigValue& v) {
      reader.boolean(v, target);
      if (v.json() == true) reader.warning(v, message, remedy);
    };
  };
  reader.members(value,
                 {{"rdma_cm", [&](const auto& v) { reader.boolean(v, nodes.rdma_cm); }},
                  {"umad", risk(nodes.umad, "every container with an HCA can send management datagrams to the fabric",
                                "leave it out unless they run fabric tools such as ibstat or ibnetdiscover")},
                  {"issm", risk(nodes.issm, "every container with an HCA can be a subnet manager of the fabric",
                                "leave it out unless a subnet manager runs in a container")},
                  {"mode", [&](const auto& v) { read_permissions(reader, v, nodes); }},
                  {"uid", [&](const auto& v) { read_id(reader, v, nodes.uid); }},
                  {"gid", [&](const auto& v) { read_id(reader, v, nodes.gid); }}});
}

void read_memlock(ConfigReader& reader, const ConfigValue& value, Config& config) {
  const Json& json = value.json();
  if (json.is_null()) {
    config.memlock.reset();
  } else if (json.is_number_unsigned() && json.get<std::uint64_t>() > 0) {
    config.memlock = json.get<std::uint64_t>();
  } else if (json == "unlimited") {
    config.memlock = UINT64_MAX;
  } else if (const auto bytes = json.is_string() ? bytes_of(json.get_ref<const std::string&>()) : std::nullopt) {
    config.memlock = bytes;
  } else {
    reader.error(value, fmt::format("`{}` is no limit", shown(json.dump(-1, ' ', true))),
                 "write \"unlimited\", bytes (67108864 or \"64MiB\"), or null to leave the container's limit alone");
  }
}

void read_netdev_names(ConfigReader& reader, const ConfigValue& value, Config& config) {
  const auto text = reader.text(value);
  if (!text) return;
  if (const auto problem = problem_of_netdev_pattern(*text)) {
    reader.error(value, fmt::format("`{}` {}", shown(*text), *problem), "write a short prefix and %d: \"net%d\"");
  } else {
    config.netdev_names = *text;
  }
}

void read_namespaces(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& globs) {
  reader.texts(value, globs, [&](const ConfigValue& element, const std::string& text) {
    if (is_namespace_glob(text)) return true;
    reader.error(element, fmt::format("`{}` is no Kubernetes namespace", shown(text)),
                 "write a namespace or a glob of lower-case letters, digits, - and *: \"team-a\", \"train-*\"");
    return false;
  });
}

void read_trusted(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& prefixes) {
  prefixes.clear();
  for (const ConfigValue& element : reader.elements(value)) {
    auto prefix = reader.word(element, Config().trusted_annotations);
    if (prefix) prefixes.push_back(*std::move(prefix));
  }
}

void read_default_devices(ConfigReader& reader, const ConfigValue& value, Config& config) {
  const auto text = reader.text(value);
  if (!text) return;
  constexpr std::size_t kLongestMessage = 200;  // it may quote all of the text
  const auto wish = parse_wish(*text, "what a container gets by default");
  if (wish) {
    config.default_devices = *text;
  } else {
    reader.error(value, shown(wish.error().message, kLongestMessage), wish.error().hint);
  }
}

}  // namespace

std::optional<std::string> read_name(ConfigReader& reader, const ConfigValue& value) {
  auto name = reader.text(value);
  if (!name || is_config_name(*name)) return name;
  reader.error(value, fmt::format("`{}` is no name", shown(*name)), kNameRemedy);
  return std::nullopt;
}

std::optional<Mode> read_mode(ConfigReader& reader, const ConfigValue& value) {
  const auto text = reader.word(value, {"exclusive", "shared", "shared-multi", "hca", "host"});
  return text ? parse_mode(*text) : std::nullopt;
}

void read_config_members(ConfigReader& reader, Config& config) {
  reader.members(
      reader.root(),
      {{"pools", [&](const auto& v) { read_pools(reader, v, config); }},
       {"networks", [&](const auto& v) { read_networks(reader, v, config); }},
       {"rails", [&](const auto& v) { read_rails(reader, v, config); }},
       {"nodes", [&](const auto& v) { read_nodes(reader, v, config.nodes); }},
       {"runtime", [&](const auto& v) { read_runtime(reader, v, config.runtime); }},
       {"nri", [&](const auto& v) { read_nri(reader, v, config.nri); }},
       {"memlock", [&](const auto& v) { read_memlock(reader, v, config); }},
       {"ipc_lock", [&](const auto& v) { reader.boolean(v, config.ipc_lock); }},
       {"sysfs_view", [&](const auto& v) { reader.boolean(v, config.sysfs_view); }},
       {"netdev_names", [&](const auto& v) { read_netdev_names(reader, v, config); }},
       {"annotations_may_request", [&](const auto& v) { read_namespaces(reader, v, config.annotations_may_request); }},
       {"env_may_request", [&](const auto& v) { reader.boolean(v, config.env_may_request); }},
       {"trusted_annotations", [&](const auto& v) { read_trusted(reader, v, config.trusted_annotations); }},
       {"default_devices", [&](const auto& v) { read_default_devices(reader, v, config); }},
       {"namespacesInclude", [&](const auto& v) { read_namespaces(reader, v, config.namespaces_include); }},
       {"namespacesExclude", [&](const auto& v) { read_namespaces(reader, v, config.namespaces_exclude); }}});
}

}  // namespace hook
