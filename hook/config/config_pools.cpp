// "pools" of config.json.
#include <algorithm>
#include <set>

#include "hook/config/config_members.hpp"
#include "hook/config/config_values.hpp"

namespace hook {
namespace {

constexpr std::uint64_t kLargestLimit = 65535;

void read_ids(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& ids) {
  reader.texts(value, ids, [&](const ConfigValue& element, std::string& text) {
    const auto id = pci_id(text);
    if (!id) {
      reader.error(element, fmt::format("`{}` is no PCI id", shown(text)),
                   "write four hexadecimal digits as `lspci -n` shows them, e.g. \"15b3\"");
      return false;
    }
    text = *id;
    return true;
  });
}

void read_if_names(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& names) {
  reader.texts(value, names, [&](const ConfigValue& element, const std::string& text) {
    if (!is_netdev_glob(text)) {
      reader.error(element, fmt::format("`{}` is no name of a netdev", shown(text)),
                   "write a name as `ip link` shows it, or a glob: \"ens*f0np0\"");
      return false;
    }
    // A netdev's name may have them, but nobody gives one such a name.
    if (text.find_first_of("?[{") != std::string::npos) {
      reader.warning(element, fmt::format("only * is a wildcard: `{}` is taken as it is", shown(text)),
                     "write * instead, or one text for each netdev");
    }
    return true;
  });
}

void read_link_types(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& types) {
  types.clear();
  for (const ConfigValue& element : reader.elements(value)) {
    if (auto type = reader.word(element, {"ether", "infiniband"})) types.push_back(*std::move(type));
  }
}

void read_drivers(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& drivers) {
  reader.texts(value, drivers, [&](const ConfigValue& element, const std::string& text) {
    if (is_config_name(text)) return true;
    reader.error(element, fmt::format("`{}` is no driver", shown(text)),
                 "write a kernel module's name, e.g. \"mlx5_core\"");
    return false;
  });
}

void read_selectors(ConfigReader& reader, const ConfigValue& value, PoolSelectors& selectors) {
  reader.members(value, {{"vendors", [&](const auto& v) { read_ids(reader, v, selectors.vendors); }},
                         {"deviceIDs", [&](const auto& v) { read_ids(reader, v, selectors.device_ids); }},
                         {"drivers", [&](const auto& v) { read_drivers(reader, v, selectors.drivers); }},
                         {"ifNames", [&](const auto& v) { read_if_names(reader, v, selectors.if_names); }},
                         {"linkTypes", [&](const auto& v) { read_link_types(reader, v, selectors.link_types); }}});
}

// "limits" and rdmaHcaMax, which is k8s-rdma-shared-dev-plugin's word for one of them.
void read_limit(ConfigReader& reader, const ConfigValue& value, Mode mode, Pool& pool) {
  const auto limit = reader.number(value, 1, kLargestLimit);
  if (!limit) return;
  if (!pool.limits.emplace(mode, static_cast<unsigned>(*limit)).second) {
    reader.error(value, "the limit of shared is there twice", "remove either rdmaHcaMax or limits.shared");
  } else if (std::find(pool.modes.begin(), pool.modes.end(), mode) == pool.modes.end()) {
    reader.warning(value, fmt::format("the pool does not allow {}", to_string(mode)),
                   "remove the limit, or add the mode to \"modes\"");
  }
}

void read_limits(ConfigReader& reader, const ConfigValue& value, Pool& pool) {
  reader.members(value, {{"shared", [&](const auto& v) { read_limit(reader, v, Mode::kShared, pool); }},
                         {"shared-multi", [&](const auto& v) { read_limit(reader, v, Mode::kSharedMulti, pool); }},
                         {"hca", [&](const auto& v) { read_limit(reader, v, Mode::kHca, pool); }},
                         {"exclusive",
                          [&](const auto& v) {
                            reader.error(v, "an exclusive HCA has one holder, which is no limit to choose",
                                         "remove it");
                          },
                          false}});
}

void read_modes(ConfigReader& reader, const ConfigValue& value, Pool& pool) {
  std::vector<Mode> modes;
  const auto elements = reader.elements(value);
  for (const ConfigValue& element : elements) {
    const auto mode = read_mode(reader, element);
    if (mode && std::find(modes.begin(), modes.end(), *mode) == modes.end()) modes.push_back(*mode);
  }
  if (value.json().is_array() && elements.empty()) {
    reader.error(value, "an empty list allows nothing", "name a mode, or leave \"modes\" out to allow all");
  }
  if (!modes.empty()) pool.modes = modes;
}

// What a pool's limits mean depends on its modes, whichever is written first.
Pool read_pool(ConfigReader& reader, const ConfigValue& value) {
  Pool pool;
  pool.modes = {Mode::kHca, Mode::kExclusive, Mode::kShared, Mode::kSharedMulti};
  std::vector<std::function<void()>> limits;
  std::optional<ConfigValue> plugin_limit;
  const auto misplaced = [&](const ConfigValue& v) {
    reader.error(v, "belongs into \"selectors\"", "write \"selectors\": { ... } around it");
  };
  reader.members(value, {{"name", [&](const auto& v) { pool.name = read_name(reader, v).value_or("?"); }},
                         {"selectors", [&](const auto& v) { read_selectors(reader, v, pool.selectors); }},
                         {"modes", [&](const auto& v) { read_modes(reader, v, pool); }},
                         {"limits", [&](const auto& v) { limits.push_back([&, v] { read_limits(reader, v, pool); }); }},
                         {"rdmaHcaMax",
                          [&](const auto& v) {
                            plugin_limit = v;
                            limits.push_back([&, v] { read_limit(reader, v, Mode::kShared, pool); });
                          }},
                         {"network", [&](const auto& v) { pool.network = read_name(reader, v); }},
                         {"vendors", misplaced, false},
                         {"deviceIDs", misplaced, false},
                         {"drivers", misplaced, false},
                         {"ifNames", misplaced, false},
                         {"linkTypes", misplaced, false}});
  for (const auto& read : limits)
    read();
  // The plugin has no modes, so a pool in its words says none, and would look limited without being so.
  const bool says_mode = value.json().is_object() && (value.json().contains("modes") || pool.network);
  if (plugin_limit && !says_mode && pool.limits.contains(Mode::kShared) && !pool.limits.contains(Mode::kHca)) {
    reader.warning(*plugin_limit, "limits shared only, and containers that name no mode get hca",
                   "write \"modes\": [\"shared\"] beside it");
  }
  if (value.json().is_object() && pool.name.empty()) reader.error(value, "has no name", "add \"name\": \"...\"");
  return pool;
}

}  // namespace

void read_pools(ConfigReader& reader, const ConfigValue& value, Config& config) {
  config.pools.clear();
  std::set<std::string> names;
  for (const ConfigValue& element : reader.elements(value)) {
    config.pools.push_back(read_pool(reader, element));
    const std::string& name = config.pools.back().name;
    if (is_config_name(name) && !names.insert(name).second) {
      reader.error(element, fmt::format("a pool above is called `{}` too", name), "give each pool its own name");
    }
  }
}

}  // namespace hook
