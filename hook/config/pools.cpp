// Reads "pools" of config.json.
#include <algorithm>
#include <set>

#include "fabric/library_variables.hpp"
#include "hook/config/reader.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

constexpr std::uint64_t kLargestLimit = 65535;
// A node has some hundred VFs at most; a larger number is a mistake.
constexpr std::uint64_t kMostExpected = 4096;
// The kernel treats INT_MAX as "max", no limit (Linux 6.12 kernel/cgroup/rdma.c).
constexpr std::uint64_t kLargestRdmaLimit = INT32_MAX - 1;

void read_if_names(ConfigReader& reader, const ConfigValue& value, std::vector<std::string>& names) {
  reader.texts(value, names, [&](const ConfigValue& element) {
    auto name = reader.parsed(element, if_is(is_netdev_glob), "is not the name of a netdev",
                              "write a name as `ip link` prints it, or a glob: \"ens*f0np0\"");
    // The kernel allows `?`, `[` and `{` in a netdev's name, but an administrator who writes them usually means a glob.
    if (name && name->find_first_of("?[{") != std::string::npos)
      reader.warning(element, fmt::format("only * is a wildcard: `{}` matches literally", shown(*name)),
                     "write * instead, or one entry per netdev");
    return name;
  });
}

// Reads "selectors". The keys are those of k8s-rdma-shared-dev-plugin.
void read_selectors(ConfigReader& reader, const ConfigValue& value, PoolSelectors& selectors) {
  const auto ids = [&](std::vector<std::string>& target) {
    return reader.texts_into(target, pci_id, "is not a PCI id",
                             "write four hexadecimal digits as `lspci -n` prints them, e.g. \"15b3\"");
  };
  reader.members(
      value, {{"vendors", ids(selectors.vendors)},
              {"deviceIDs", ids(selectors.device_ids)},
              {"drivers", reader.texts_into(selectors.drivers, if_is(is_config_name), "is not the name of a driver",
                                            "write a kernel module's name, e.g. \"mlx5_core\"")},
              {"ifNames", reader.into(selectors.if_names, read_if_names)},
              {"linkTypes", reader.words_into(selectors.link_types, {"ether", "infiniband"})},
              {"pciAddresses", reader.texts_into(selectors.pci_addresses, pci_address_glob, "is not a PCI address",
                                                 "write it as `lspci -D` prints it, or with *: \"0000:0c:00.*\"")}});
}

// Reads a member of "limits" or rdmaHcaMax, the key of k8s-rdma-shared-dev-plugin for limits.shared.
void read_limit(ConfigReader& reader, const ConfigValue& value, Mode mode, Pool& pool) {
  const auto limit = reader.number(value, 1, kLargestLimit);
  if (!limit) return;
  if (!pool.limits.emplace(mode, static_cast<unsigned>(*limit)).second) {
    reader.error(value, "limits.shared is set twice", "remove either rdmaHcaMax or limits.shared");
  } else if (std::ranges::find(pool.modes, mode) == pool.modes.end()) {
    reader.warning(value, fmt::format("the pool does not allow mode {}", to_string(mode)),
                   "remove the limit or add the mode to \"modes\"");
  }
}

// Reads a limit of RDMA objects or handles. Warns if the pool allows only mode exclusive, in which no other container
// uses the HCA.
void read_rdma_limit(ConfigReader& reader, const ConfigValue& value, const Pool& pool,
                     std::optional<std::uint32_t>& target) {
  if (const auto limit = reader.number(value, 1, kLargestRdmaLimit)) target = static_cast<std::uint32_t>(*limit);
  if (pool.modes == std::vector{Mode::kExclusive})
    reader.warning(value, "the pool allows only mode exclusive, where RDMA limits have no effect",
                   "remove it or add a mode to \"modes\"");
}

void read_limits(ConfigReader& reader, const ConfigValue& value, Pool& pool) {
  const auto limit = [&](Mode mode) {
    return [&reader, &pool, mode](const ConfigValue& v) { read_limit(reader, v, mode, pool); };
  };
  // The limit of mode exclusive is read only for this message, because it is a frequent mistake.
  const auto refused = [&](const ConfigValue& v) {
    reader.error(v, "an exclusive HCA always has one owner", "remove it");
  };
  const auto of_container = [&](std::optional<std::uint32_t>& target) {
    return [&reader, &pool, &target](const ConfigValue& v) { read_rdma_limit(reader, v, pool, target); };
  };
  reader.members(value, {{"shared", limit(Mode::kShared)},
                         {"shared-multi", limit(Mode::kSharedMulti)},
                         {"hca", limit(Mode::kHca)},
                         {"hca_objects", of_container(pool.rdma_limits.objects)},
                         {"hca_handles", of_container(pool.rdma_limits.handles)},
                         {"exclusive", refused, false}});
}

// Reads "modes" without duplicates. An empty list would allow no container, so it is an error.
void read_modes(ConfigReader& reader, const ConfigValue& value, std::vector<Mode>& target) {
  std::vector<Mode> modes;
  const auto elements = reader.elements(value);
  for (const ConfigValue& element : elements) {
    const auto mode = reader.word(element, kModeWords);
    // "host" is another word for "hca", so duplicates are possible and harmless.
    if (mode && std::ranges::find(modes, *mode) == modes.end()) modes.push_back(*mode);
  }
  if (value.json().is_array() && elements.empty())
    reader.error(value, "an empty list allows no mode", "add a mode, or remove \"modes\" to allow all");
  if (!modes.empty()) target = modes;
}

// k8s-rdma-shared-dev-plugin has no modes. A pool copied from its configuration limits only mode shared, but its
// containers get the default mode hca, which is then unlimited.
void check_plugin_limit(ConfigReader& reader, const ConfigValue& limit, const Pool& pool) {
  if (!pool.network && pool.limits.contains(Mode::kShared) && !pool.limits.contains(Mode::kHca))
    reader.warning(limit, "limits only containers of mode shared, but containers without a mode get mode hca",
                   "add \"modes\": [\"shared\"] to the pool");
}

// Reads a pool. Without "modes" all modes are allowed, and the default is hca, which changes no netdev. A wrong name
// becomes "?", so that no second problem reports the name as missing. Limits are read last, because they depend on
// "modes", which may come later in the file.
Pool read_pool(ConfigReader& reader, const ConfigValue& value) {
  Pool pool;
  pool.modes = {Mode::kHca, Mode::kExclusive, Mode::kShared, Mode::kSharedMulti};
  std::vector<std::function<void()>> limits;
  std::optional<ConfigValue> plugin_limit;
  const auto name = [&](const ConfigValue& v) {
    pool.name = reader.parsed(v, if_is(is_config_name), kNoName, kNameRemedy).value_or("?");
  };
  const auto misplaced = [&](const ConfigValue& v) {
    reader.error(v, "belongs in \"selectors\"", "move it to \"selectors\": { ... }");
  };
  reader.members(value, {{"name", name},
                         {"selectors", reader.into(pool.selectors, read_selectors)},
                         {"modes", reader.into(pool.modes, read_modes)},
                         {"limits", [&](const auto& v) { limits.push_back([&, v] { read_limits(reader, v, pool); }); }},
                         {"rdmaHcaMax",
                          [&](const auto& v) {
                            plugin_limit = v;
                            limits.push_back([&, v] { read_limit(reader, v, Mode::kShared, pool); });
                          }},
                         {"env", reader.into(pool.env, read_env)},
                         {"expect", reader.number_into(pool.expect, 1, kMostExpected)},
                         {"lend_providers", reader.flag_into(pool.lend_providers)},
                         {"network", reader.text_into(pool.network, if_is(is_config_name), kNoName, kNameRemedy)},
                         {"resource", reader.text_into(pool.resource, if_is(is_resource_name), "is not a resource name",
                                                       "write a domain and a name, e.g. \"rdma-init.io/rails\"")},
                         {"vendors", misplaced, false},
                         {"deviceIDs", misplaced, false},
                         {"drivers", misplaced, false},
                         {"ifNames", misplaced, false},
                         {"linkTypes", misplaced, false},
                         {"pciAddresses", misplaced, false}});
  for (const auto& read : limits)
    read();
  if (plugin_limit && !ConfigReader::find(value, "modes")) check_plugin_limit(reader, *plugin_limit, pool);
  if (value.json().is_object() && pool.name.empty()) reader.error(value, "has no name", "add \"name\": \"...\"");
  return pool;
}

}  // namespace

void read_env(ConfigReader& reader, const ConfigValue& value, SiteValues& values) {
  for (const auto& [name, member] : reader.entries(value)) {
    if (!fabric::is_policy_variable(name)) {
      reader.error(member, fmt::format("`{}` is no variable of a communication library", shown(name)),
                   "write names such as NCCL_IB_TC or UCX_IB_SL");
      continue;
    }
    const auto text = reader.parsed(member, if_is(fabric::is_site_value), "cannot be carried to a container",
                                    "write 1 to 255 printable characters without a semicolon");
    if (text) values[name] = *text;
  }
}

void read_pools(ConfigReader& reader, const ConfigValue& value, std::vector<Pool>& pools) {
  pools.clear();
  // Without pools all HCAs are one pool, so an empty list would grant all HCAs in place of none.
  if (value.json().is_array() && value.json().empty())
    reader.error(value, "an empty list", "remove the key for one pool of all HCAs");
  std::set<std::string> names;
  for (const ConfigValue& element : reader.elements(value)) {
    pools.push_back(read_pool(reader, element));
    const std::string& name = pools.back().name;
    if (is_config_name(name) && !names.insert(name).second)
      reader.error(element, fmt::format("an earlier pool has the name `{}` too", name),
                   "write a different name for each pool");
  }
}

}  // namespace hook
