// Reads "networks" of config.json.
#include <algorithm>

#include "hook/config/reader.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

// The first table that the kernel reserves: RT_TABLE_DEFAULT, then _MAIN and _LOCAL (include/uapi/linux/rtnetlink.h).
constexpr unsigned kFirstReserved = 253;
constexpr unsigned kLastReserved = 255;
// Containers rarely have more rails than this. A first table that leaves fewer tables for rails gets a warning.
constexpr unsigned kUsualRails = 16;
// Last priority of a rail's rule, which must precede the kernel's rule for the main table, whose priority is 32766
// (net/ipv4/fib_rules.c).
constexpr unsigned kLastPriority = 32765;

constexpr Word<RailTest> kTests[] = {{"off", RailTest::kOff}, {"warn", RailTest::kWarn}, {"fail", RailTest::kFail}};
constexpr Word<bool> kMacvlanModes[] = {{"bridge", false}, {"private", true}};

// Reads the number of the first routing table. The rails use consecutive tables, which must not reach the tables that
// the kernel reserves.
void read_first_table(ConfigReader& reader, const ConfigValue& value, std::optional<unsigned>& table) {
  const auto number = reader.number(value, 1, UINT32_MAX);
  if (!number) return;
  const auto first = static_cast<unsigned>(*number);
  const std::string remedy =
      fmt::format("write a table from 1 to {} or above {}, e.g. 100", kFirstReserved - 1, kLastReserved);
  if (first >= kFirstReserved && first <= kLastReserved) {
    reader.error(value, fmt::format("table {} is reserved by the kernel", first), remedy);
  } else if (first < kFirstReserved && first + kUsualRails > kFirstReserved) {
    reader.warning(value,
                   fmt::format("only {} rails get a routing table: the kernel reserves the tables {} to {}",
                               kFirstReserved - first, kFirstReserved, kLastReserved),
                   fmt::format("begin at {} or below", kFirstReserved - kUsualRails));
  } else if (first > UINT32_MAX - kUsualRails + 1) {
    reader.warning(value,
                   fmt::format("only {} rails get a routing table: no table has a higher number",
                               std::uint64_t{UINT32_MAX} - first + 1),
                   "begin at a lower table, e.g. 100");
  }
  table = first;
}

void read_routing(ConfigReader& reader, const ConfigValue& value, Network& network) {
  // null disables routing tables and rules per rail: all rails use the main table.
  if (value.json().is_null()) {
    network.first_table.reset();
    return;
  }
  reader.members(value, {{"first_table", reader.into(network.first_table, read_first_table)},
                         {"rule_priority", reader.number_into(network.rule_priority, 1, kLastPriority)}});
}

// Checks only "type": the plugin checks the other members.
void read_ipam(ConfigReader& reader, const ConfigValue& value, Network& network) {
  std::optional<std::string> plugin;
  for (const auto& [name, member] : reader.entries(value)) {
    if (name != "type") continue;
    plugin = reader.parsed(member, if_is(is_config_name), "is not the name of a CNI plugin",
                           "write the plugin's file name without its directory: \"host-local\"");
    if (!plugin) return;
  }
  if (!value.json().is_object()) return;
  if (!plugin) reader.error(value, "has no type", "add the plugin's file name: \"type\": \"host-local\"");
  // The text is kept, because the plugin gets the object as JSON on stdin.
  network.ipam = value.json().dump(-1, ' ', false, Json::error_handler_t::replace);
  network.ipam_plugin = plugin.value_or("");
}

// Returns the directory without trailing slashes; nullopt if it is not an absolute path.
std::optional<std::string> ipam_directory(std::string text) {
  if (!is_absolute_path(text)) return std::nullopt;
  while (text.size() > 1 && text.ends_with('/'))
    text.pop_back();
  return text;
}

// Checks members that are valid only with a certain "child" or "mode". Runs after all members are read, because the
// order of members in the file must not matter.
void check_child(ConfigReader& reader, const ConfigValue& value, const Network& network) {
  const auto only_for = [&](const char* name, std::string_view child) {
    const auto place = ConfigReader::find(value, name);
    if (!place || network.child == child) return;
    reader.error(*place, fmt::format("applies to {} children, but \"child\" is {}", child, network.child),
                 fmt::format("remove it or write \"child\": \"{}\"", child));
  };
  only_for("macvlan_mode", "macvlan");
  only_for("pkey", "ipoib");
  const auto vf = ConfigReader::find(value, "vf");
  if (vf && !set_attributes(network).empty() && network.mode && *network.mode != Mode::kExclusive)
    reader.error(*vf, fmt::format("applies only to mode exclusive, but the mode is {}", to_string(*network.mode)),
                 "remove it or write \"mode\": \"exclusive\"");
}

void check_addresses(ConfigReader& reader, const ConfigValue& value, const Network& network) {
  constexpr unsigned kIpv6Mtu = 1280;  // minimum of RFC 8200 section 5; below it the kernel disables IPv6 on a netdev
  const auto ipam = ConfigReader::find(value, "ipam");
  const auto directory = ConfigReader::find(value, "ipam_dir");
  if (network.ipam && ConfigReader::find(value, "addresses"))
    reader.error(*ipam, "cannot be combined with \"addresses\"", "remove one of the two");
  if (directory && !ipam)
    reader.warning(*directory, "has no effect without \"ipam\" except for recorded leases",
                   "remove it when all leases are released");
  const bool ipv6 = std::ranges::any_of(
      network.ranges, [](const AddressRange& range) { return range.subnet.family() == fabric::Family::kIpv6; });
  if (ipv6 && network.mtu && *network.mtu < kIpv6Mtu)
    reader.error(*ConfigReader::find(value, "mtu"),
                 fmt::format("{} is too small for the IPv6 range in \"addresses\"", *network.mtu),
                 fmt::format("write at least {}", kIpv6Mtu));
}

Network read_network(ConfigReader& reader, const ConfigValue& value) {
  constexpr unsigned kLeastMtu = 68;  // RFC 791; ETH_MIN_MTU
  constexpr unsigned kMostMtu = 65535;
  Network network;
  const auto child = [&](const ConfigValue& v) {
    if (auto word = reader.word(v, {"macvlan", "ipvlan", "ipoib"})) network.child = *std::move(word);
  };
  reader.members(value,
                 {{"mode", reader.word_into(network.mode, kModeWords)},
                  {"child", child},
                  {"pool", reader.text_into(network.pool, if_is(is_config_name), kNoName, kNameRemedy)},
                  {"macvlan_mode", reader.word_into(network.macvlan_private, kMacvlanModes)},
                  {"pkey", reader.text_into(network.pkey, partition_key, "is not a partition key",
                                            "write it as \"0x8001\", from 0x0001 to 0xffff without 0x8000")},
                  {"mtu", reader.number_into(network.mtu, kLeastMtu, kMostMtu)},
                  {"vf", reader.into(network, read_vf)},
                  {"addresses", reader.into(network.ranges, read_addresses)},
                  {"ipam", [&](const ConfigValue& v) { read_ipam(reader, v, network); }},
                  {"ipam_dir", reader.text_into(network.ipam_dir, ipam_directory, "is not an absolute path",
                                                "write the directory of the CNI plugins: \"/opt/cni/bin\", in Debian "
                                                "\"/usr/lib/cni\"")},
                  {"env", reader.into(network.env, read_env)},
                  {"routing", reader.into(network, read_routing)},
                  {"gateway_test", reader.word_into(network.gateway_test, kTests)},
                  {"duplicate_test", reader.word_into(network.duplicate_test, kTests)},
                  {"test_retries", reader.number_into(network.test_retries, 1, 20)},
                  {"test_interval_ms", reader.number_into(network.test_interval_ms, 10, 5000)},
                  {"align_gids", reader.flag_into(network.align_gids)},
                  {"gid_wait_ms", reader.number_into(network.gid_wait_ms, 0, 30000)},
                  {"take_node_netdevs", reader.flag_into(network.take_node_netdevs)}});
  check_child(reader, value, network);
  check_addresses(reader, value, network);
  return network;
}

}  // namespace

void read_networks(ConfigReader& reader, const ConfigValue& value, std::map<std::string, Network>& networks) {
  for (const auto& [name, entry] : reader.entries(value)) {
    if (name == "$comment" || name == "$schema") continue;
    if (!is_config_name(name)) {
      reader.error(entry, fmt::format("`{}` {}", shown(name), kNoName), kNameRemedy);
      continue;
    }
    // A network in a later file replaces the network of this name as a whole. Members of two files are not merged,
    // because the checks above see only the members of one file.
    Network network = read_network(reader, entry);
    network.name = name;
    networks[name] = std::move(network);
  }
}

}  // namespace hook
