// "networks" of config.json.
#include <algorithm>

#include "fabric/text.hpp"
#include "hook/config/config_members.hpp"
#include "hook/config/config_values.hpp"

namespace hook {
namespace {

// RT_TABLE_DEFAULT, _MAIN, _LOCAL (include/uapi/linux/rtnetlink.h).
constexpr unsigned kFirstReserved = 253;
constexpr unsigned kLastReserved = 255;
constexpr unsigned kUsualRails = 16;
constexpr unsigned kLastPriority = 32765;  // 32766 is the main table's (net/ipv4/fib_rules.c)
constexpr const char* kIpamDirectory = "/opt/cni/bin";

void read_test(ConfigReader& reader, const ConfigValue& value, RailTest& test) {
  const auto word = reader.word(value, {"off", "warn", "fail"});
  if (word) test = *word == "off" ? RailTest::kOff : *word == "warn" ? RailTest::kWarn : RailTest::kFail;
}

void read_pkey(ConfigReader& reader, const ConfigValue& value, Network& network) {
  const auto text = reader.text(value);
  if (!text) return;
  network.pkey = partition_key(*text);
  if (network.pkey) return;
  reader.error(value, fmt::format("`{}` is no partition key", shown(*text)),
               "write it as \"0x8001\", from 0x0001 to 0xffff without 0x8000");
}

void read_first_table(ConfigReader& reader, const ConfigValue& value, Network& network) {
  const auto number = reader.number(value, 1, UINT32_MAX);
  if (!number) return;
  const auto first = static_cast<unsigned>(*number);
  const std::string remedy =
      fmt::format("write one from 1 to {} or above {}, e.g. 100", kFirstReserved - 1, kLastReserved);
  if (first >= kFirstReserved && first <= kLastReserved) {
    reader.error(value, fmt::format("table {} is the kernel's own", first), remedy);
  } else if (first < kFirstReserved && first + kUsualRails > kFirstReserved) {
    reader.warning(value,
                   fmt::format("leaves tables for {} rails, {} to {} are the kernel's own", kFirstReserved - first,
                               kFirstReserved, kLastReserved),
                   fmt::format("begin at {} or below", kFirstReserved - kUsualRails));
  } else if (first > UINT32_MAX - kUsualRails + 1) {
    reader.warning(value, fmt::format("leaves tables for {} rails", std::uint64_t{UINT32_MAX} - first + 1),
                   "begin at a lower one, e.g. 100");
  }
  network.first_table = first;
}

void read_routing(ConfigReader& reader, const ConfigValue& value, Network& network) {
  if (value.json().is_null()) {
    network.first_table.reset();
    return;
  }
  reader.members(value, {{"first_table", [&](const auto& v) { read_first_table(reader, v, network); }},
                         {"rule_priority",
                          [&](const auto& v) { read_number(reader, v, 1, kLastPriority, network.rule_priority); }}});
}

// Only "type" is ours: the rest is the plugin's, which checks it.
std::optional<std::string> read_ipam(ConfigReader& reader, const ConfigValue& value, Network& network) {
  std::optional<std::string> plugin;
  for (const auto& [name, member] : reader.entries(value)) {
    if (name != "type") continue;
    plugin = reader.text(member);
    if (!plugin) return std::nullopt;
    if (is_config_name(*plugin)) break;
    reader.error(member, fmt::format("`{}` is no name of a CNI plugin", shown(*plugin)),
                 "write the plugin's file name without its directory: \"host-local\"");
    return std::nullopt;
  }
  if (!value.json().is_object()) return std::nullopt;
  if (!plugin) reader.error(value, "has no type", "add the plugin's file name: \"type\": \"host-local\"");
  network.ipam = value.json().dump(-1, ' ', false, Json::error_handler_t::replace);
  return plugin;
}

std::optional<std::string> read_ipam_directory(ConfigReader& reader, const ConfigValue& value) {
  auto text = reader.text(value);
  if (!text) return std::nullopt;
  if (!is_absolute_path(*text)) {
    reader.error(value, fmt::format("`{}` is no absolute path", shown(*text)),
                 "write the directory of the CNI plugins: \"/opt/cni/bin\", in Debian \"/usr/lib/cni\"");
    return std::nullopt;
  }
  while (text->ends_with('/'))
    text->pop_back();
  return text;
}

// Members whose meaning depends on others, whichever is written first: by name, where they stand.
using Places = std::map<std::string_view, ConfigValue>;

void check_child(ConfigReader& reader, const Places& places, const Network& network) {
  const auto only_for = [&](std::string_view name, std::string_view child) {
    const auto place = places.find(name);
    if (place == places.end() || network.child == child) return;
    reader.error(place->second, fmt::format("belongs to {} children, and these are {}", child, network.child),
                 fmt::format("remove it, or write \"child\": \"{}\"", child));
  };
  only_for("macvlan_mode", "macvlan");
  only_for("pkey", "ipoib");
  const auto vf = places.find("vf");
  if (vf != places.end() && !network.vf.empty() && network.mode && *network.mode != Mode::kExclusive) {
    reader.error(
        vf->second,
        fmt::format("is set on functions that a container holds alone, and the mode is {}", to_string(*network.mode)),
        "remove it, or write \"mode\": \"exclusive\"");
  }
}

void check_addresses(ConfigReader& reader, const Places& places, const Network& network) {
  constexpr unsigned kIpv6Mtu = 1280;  // RFC 8200 section 5; below it the kernel takes IPv6 off a netdev
  if (network.ipam && places.contains("addresses")) {
    reader.error(places.at("ipam"), "\"addresses\" gives addresses already", "remove one of the two");
  }
  if (places.contains("ipam_dir") && !places.contains("ipam")) {
    reader.warning(places.at("ipam_dir"), "is not used without \"ipam\"", "remove it");
  }
  const bool ipv6 = std::any_of(network.ranges.begin(), network.ranges.end(), [](const AddressRange& range) {
    return range.subnet.family() == fabric::Family::kIpv6;
  });
  if (ipv6 && network.mtu && *network.mtu < kIpv6Mtu) {
    reader.error(places.at("mtu"), fmt::format("{} is too short for the IPv6 of \"addresses\"", *network.mtu),
                 fmt::format("write at least {}", kIpv6Mtu));
  }
}

Network read_network(ConfigReader& reader, const ConfigValue& value) {
  constexpr unsigned kLeastMtu = 68;  // RFC 791; ETH_MIN_MTU
  constexpr unsigned kMostMtu = 65535;
  Network network;
  Places places;
  std::optional<std::string> plugin;
  std::string directory = kIpamDirectory;
  const auto placed = [&](std::string_view name, auto read) {
    return ConfigReader::Member{name, [&places, name, read](const ConfigValue& v) {
                                  places.emplace(name, v);
                                  read(v);
                                }};
  };
  const auto test = [&](RailTest& target) { return [&](const ConfigValue& v) { read_test(reader, v, target); }; };
  const auto flag = [&](bool& target) { return [&](const ConfigValue& v) { reader.boolean(v, target); }; };
  const auto number = [&](unsigned lowest, unsigned highest, auto& target) {
    return [&, lowest, highest](const ConfigValue& v) { read_number(reader, v, lowest, highest, target); };
  };
  reader.members(
      value,
      {{"mode", [&](const auto& v) { network.mode = read_mode(reader, v); }},
       {"child",
        [&](const auto& v) {
          if (auto child = reader.word(v, {"macvlan", "ipvlan", "ipoib"})) network.child = *std::move(child);
        }},
       {"pool", [&](const auto& v) { network.pool = read_name(reader, v); }},
       placed("macvlan_mode",
              [&](const auto& v) {
                network.macvlan_private = reader.word(v, {"bridge", "private"}) == "private";
              }),
       placed("pkey", [&](const auto& v) { read_pkey(reader, v, network); }),
       placed("mtu", number(kLeastMtu, kMostMtu, network.mtu)),
       placed("vf", [&](const auto& v) { read_vf(reader, v, network.vf); }),
       placed("addresses", [&](const auto& v) { read_addresses(reader, v, network.ranges); }),
       placed("ipam", [&](const auto& v) { plugin = read_ipam(reader, v, network); }),
       placed("ipam_dir", [&](const auto& v) { directory = read_ipam_directory(reader, v).value_or(kIpamDirectory); }),
       {"routing", [&](const auto& v) { read_routing(reader, v, network); }},
       {"gateway_test", test(network.gateway_test)},
       {"duplicate_test", test(network.duplicate_test)},
       {"test_retries", number(1, 20, network.test_retries)},
       {"test_interval_ms", number(10, 5000, network.test_interval_ms)},
       {"align_gids", flag(network.align_gids)},
       {"gid_wait_ms", number(0, 30000, network.gid_wait_ms)},
       {"take_node_netdevs", flag(network.take_node_netdevs)}});
  if (plugin) network.ipam_plugin = directory + "/" + *plugin;
  check_child(reader, places, network);
  check_addresses(reader, places, network);
  return network;
}

}  // namespace

void read_networks(ConfigReader& reader, const ConfigValue& value, Config& config) {
  for (const auto& [name, entry] : reader.entries(value)) {
    if (name == "$comment" || name == "$schema") continue;
    if (!is_config_name(name)) {
      reader.error(entry, fmt::format("`{}` is no name", shown(name)), kNameRemedy);
      continue;
    }
    Network network = read_network(reader, entry);
    network.name = name;
    config.networks[name] = std::move(network);
  }
}

}  // namespace hook
