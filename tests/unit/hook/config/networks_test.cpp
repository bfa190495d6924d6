// The networks of config.json: the effect of each member, and one row per error.
#include <gtest/gtest.h>

#include <linux/if_link.h>

#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

using test_support::address;

// Returns the problem without the label of its remedy, so that cases are short.
std::string brief(const ConfigProblem& problem) {
  constexpr std::string_view kLabel = "remedy: ";
  std::string text = to_string(problem);
  return text.erase(text.find(kLabel), kLabel.size());
}

std::string problems_of(const ParsedConfig& parsed) {
  std::string text;
  for (const ConfigProblem& problem : parsed.problems)
    text += brief(problem) + "\n";
  return text;
}

ParsedConfig parse(const std::string& members) {
  return parse_config({{"c", R"({"networks":{"n":{)" + members + "}}}"}});
}

Network network(const std::string& members) {
  const auto parsed = parse(members);
  EXPECT_EQ(problems_of(parsed), "") << members;
  const auto found = parsed.config.networks.find("n");
  return found == parsed.config.networks.end() ? Network() : found->second;
}

TEST(HookConfigNetworks, ReadsEveryMember) {
  const Network read = network(R"(
    "mode": "exclusive", "child": "macvlan", "macvlan_mode": "private", "mtu": 9000,
    "vf": {"mac": "02:00:00:00:00:0A", "vlan": 7, "qos": 3, "vlan_protocol": "802.1ad", "trust": true,
           "spoofchk": false, "link_state": "enable", "min_tx_rate": 1000, "max_tx_rate": 2000,
           "node_guid": "00:11:22:33:44:55:66:77", "port_guid": "00:11:22:33:44:55:66:78"},
    "addresses": [{"rail": 1, "subnet": "10.1.0.0/16", "from": "10.1.1.10", "to": "10.1.1.250", "gateway": "10.1.0.1"},
                  {"subnet": "fd00:1::/64"}],
    "routing": {"first_table": 300, "rule_priority": 100}, "gateway_test": "fail", "duplicate_test": "warn",
    "test_retries": 5, "test_interval_ms": 10, "align_gids": false, "gid_wait_ms": 0, "take_node_netdevs": true)");
  Network expected;
  expected.name = "n";
  expected.mode = Mode::kExclusive;
  expected.macvlan_private = true;
  expected.mtu = 9000;
  expected.vf = {.mac = MacAddress{2, 0, 0, 0, 0, 10},
                 .vlan = 7,
                 .qos = 3,
                 .vlan_protocol = std::uint16_t{0x88a8},
                 .trust = true,
                 .spoofchk = false,
                 .link_state = IFLA_VF_LINK_STATE_ENABLE,
                 .min_tx_rate = 1000,
                 .max_tx_rate = 2000,
                 .node_guid = 0x0011223344556677,
                 .port_guid = 0x0011223344556678};
  expected.ranges = {
      {1, address("10.1.0.0"), 16, address("10.1.1.10"), address("10.1.1.250"), address("10.1.0.1")},
      {std::nullopt, address("fd00:1::"), 64, address("fd00:1::1"), address("fd00:1::ffff:ffff:ffff:ffff"), {}}};
  expected.first_table = 300;
  expected.rule_priority = 100;
  expected.gateway_test = RailTest::kFail;
  expected.duplicate_test = RailTest::kWarn;
  expected.test_retries = 5;
  expected.test_interval_ms = 10;
  expected.align_gids = false;
  expected.gid_wait_ms = 0;
  expected.take_node_netdevs = true;
  EXPECT_EQ(read, expected);
}

TEST(HookConfigNetworks, EmptyNetworkHasDefaults) {
  Network expected;
  expected.name = "n";
  EXPECT_EQ(network(""), expected);
  EXPECT_EQ(network(R"("$comment":"c","macvlan_mode":"bridge","vf":{},"addresses":[],"routing":{})"), expected);
  EXPECT_EQ(network(R"("routing":null)").first_table, std::nullopt);
}

TEST(HookConfigNetworks, ReadsPartitionKeysAndIpam) {
  EXPECT_EQ(network(R"("child":"ipoib","pkey":"0x8001")").pkey, 0x8001);
  EXPECT_EQ(network(R"("pkey":"0X1","child":"ipoib")").pkey, 1);
  EXPECT_EQ(network(R"("pkey":"0xFFFF","child":"ipoib")").pkey, 0xffff);
  const Network debian = network(R"("ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/8"}]],"x":"\u00e9"},
                                    "ipam_dir":"/usr/lib/cni/")");
  EXPECT_EQ(debian.ipam, "{\"type\":\"host-local\",\"ranges\":[[{\"subnet\":\"10.0.0.0/8\"}]],\"x\":\"\u00e9\"}");
  EXPECT_EQ(debian.ipam_dir + " " + debian.ipam_plugin, "/usr/lib/cni host-local");
  const Network usual = network(R"("ipam":{"type":"whereabouts"})");
  EXPECT_EQ(usual.ipam_dir + " " + usual.ipam_plugin, "/opt/cni/bin whereabouts");
}

// Returns "FROM-TO" of the only range.
TEST(HookConfigNetworks, ComputesAddressesOfSubnet) {
  for (const auto& [range, expected] : std::vector<std::pair<const char*, const char*>>{
           {R"("subnet":"10.1.2.0/24")", "10.1.2.1-10.1.2.254"},
           {R"("subnet":"10.1.2.0/24","gateway":"10.1.2.1")", "10.1.2.2-10.1.2.254"},
           {R"("subnet":"10.1.2.0/24","gateway":"10.1.2.254")", "10.1.2.1-10.1.2.253"},
           {R"("subnet":"10.1.2.0/24","gateway":"10.1.2.9")", "10.1.2.1-10.1.2.254"},
           {R"("subnet":"10.1.2.0/24","from":"10.1.2.9")", "10.1.2.9-10.1.2.254"},
           {R"("subnet":"10.1.2.0/24","to":"10.1.2.9")", "10.1.2.1-10.1.2.9"},
           {R"("subnet":"10.1.2.0/24","from":"10.1.2.9","to":"10.1.2.9")", "10.1.2.9-10.1.2.9"},
           {R"("subnet":"10.255.0.0/16")", "10.255.0.1-10.255.255.254"},
           {R"("subnet":"10.1.2.4/31")", "10.1.2.4-10.1.2.5"},
           {R"("subnet":"10.1.2.4/31","gateway":"10.1.2.4")", "10.1.2.5-10.1.2.5"},
           {R"("subnet":"10.1.2.4/32")", "10.1.2.4-10.1.2.4"},
           {R"("subnet":"fd00::/120")", "fd00::1-fd00::ff"},
           {R"("subnet":"fd00::ff00/120","gateway":"fd00::ffff")", "fd00::ff01-fd00::fffe"},
           {R"("subnet":"fd00::4/127")", "fd00::4-fd00::5"},
           // Neighbours of the ranges for documentation, and a subnet that includes one.
           {R"("subnet":"192.0.3.0/24")", "192.0.3.1-192.0.3.254"},
           {R"("subnet":"192.0.2.0/23")", "192.0.2.1-192.0.3.254"},
           {R"("subnet":"2001:db9::/112")", "2001:db9::1-2001:db9::ffff"},
           {R"("subnet":"3fff:1000::/112")", "3fff:1000::1-3fff:1000::ffff"}}) {
    SCOPED_TRACE(range);
    const Network read = network(std::string(R"("addresses":[{)") + range + "}]");
    ASSERT_EQ(read.ranges.size(), 1U);
    EXPECT_EQ(fabric::to_string(read.ranges[0].from) + "-" + fabric::to_string(read.ranges[0].to), expected);
  }
}

struct NetworkRow {
  std::string members;
  std::string expected;  // "PLACE: MESSAGE; REMEDY" of the one problem, the place below networks.n
};

void expect_problems(const std::vector<NetworkRow>& rows, bool errors) {
  for (const NetworkRow& row : rows) {
    SCOPED_TRACE(row.members);
    const auto parsed = parse(row.members);
    EXPECT_EQ(parsed.ok(), !errors);
    EXPECT_EQ(problems_of(parsed),
              std::string("c:1: ") + (errors ? "error" : "warning") + ": `networks.n." + row.expected + "\n");
  }
}

std::string range(const std::string& members) {
  return R"("addresses":[{)" + members + "}]";
}

TEST(HookConfigNetworks, RefusesWrongValues) {
  const std::string numbers = " is not a valid number here; write a whole number from ";
  const std::string pkey = " is not a partition key; write it as \"0x8001\", from 0x0001 to 0xffff without 0x8000";
  expect_problems(
      {{R"("macvlan_mode":"vepa")", "macvlan_mode`: `vepa` is unknown; write one of: bridge, private"},
       {R"("child":"ipvlan","macvlan_mode":"bridge")",
        "macvlan_mode`: applies to macvlan children, but \"child\" is ipvlan; remove it or write \"child\": "
        "\"macvlan\""},
       {R"("child":"ipoib","pkey":"8001")", "pkey`: `8001`" + pkey},
       {R"("child":"ipoib","pkey":"0x8000")", "pkey`: `0x8000`" + pkey},
       {R"("child":"ipoib","pkey":"0x10001")", "pkey`: `0x10001`" + pkey},
       {R"("pkey":"0x8001")",
        "pkey`: applies to ipoib children, but \"child\" is macvlan; remove it or write \"child\": \"ipoib\""},
       {R"("mtu":67)", "mtu`: 67" + numbers + "68 to 65535, without quotes"},
       {R"("mtu":1279,"addresses":[{"subnet":"fd00::/64"}])",
        "mtu`: 1279 is too small for the IPv6 range in \"addresses\"; write at least 1280"},
       {R"("routing":{"first_table":0})", "routing.first_table`: 0" + numbers + "1 to 4294967295, without quotes"},
       {R"("routing":{"first_table":254})",
        "routing.first_table`: table 254 is reserved by the kernel; write a table from 1 to 252 or above 255, e.g. "
        "100"},
       {R"("routing":{"rule_priority":32766})",
        "routing.rule_priority`: 32766" + numbers + "1 to 32765, without quotes"},
       {R"("gateway_test":true)", "gateway_test`: expected a text, found true or false; write it in quotes"},
       {R"("duplicate_test":"error")", "duplicate_test`: `error` is unknown; write one of: off, warn, fail"},
       {R"("test_retries":0)", "test_retries`: 0" + numbers + "1 to 20, without quotes"},
       {R"("test_interval_ms":5001)", "test_interval_ms`: 5001" + numbers + "10 to 5000, without quotes"},
       {R"("gid_wait_ms":30001)", "gid_wait_ms`: 30001" + numbers + "0 to 30000, without quotes"},
       {R"("align_gids":1)",
        "align_gids`: expected true or false, found a number; write true or false, without quotes"},
       {R"("take_node_netdevs":"yes")",
        "take_node_netdevs`: expected true or false, found a text; write true or false, without quotes"}},
      true);
}

TEST(HookConfigNetworks, RefusesWrongVfs) {
  const std::string numbers = " is not a valid number here; write a whole number from 0 to ";
  const std::string guid = " is not a GUID; write eight bytes, not all zero: \"00:11:22:33:44:55:66:77\"";
  expect_problems(
      {{R"("vf":{"mac":"02:00:00:00:00"})",
        "vf.mac`: `02:00:00:00:00` is not a MAC address; write it as \"02:00:00:00:00:01\""},
       {R"("vf":{"mac":"02:0:00:00:00:01"})",
        "vf.mac`: `02:0:00:00:00:01` is not a MAC address; write it as \"02:00:00:00:00:01\""},
       {R"("vf":{"mac":"03:00:00:00:00:01"})",
        "vf.mac`: `03:00:00:00:00:01` is a group address or zero; write an even first byte, 02 for local addresses: "
        "\"02:00:00:00:00:01\""},
       {R"("vf":{"vlan":4095})", "vf.vlan`: 4095" + numbers + "4094, without quotes"},
       {R"("vf":{"vlan":1,"qos":8})", "vf.qos`: 8" + numbers + "7, without quotes"},
       {R"("vf":{"qos":3})", "vf`: \"qos\" and \"vlan_protocol\" require \"vlan\"; add \"vlan\""},
       {R"("vf":{"vlan":1,"vlan_protocol":"802.1x"})",
        "vf.vlan_protocol`: `802.1x` is unknown; did you mean `802.1q`?"},
       {R"("vf":{"trust":"on"})",
        "vf.trust`: expected true or false, found a text; write true or false, without quotes"},
       {R"("vf":{"link_state":"up"})", "vf.link_state`: `up` is unknown; write one of: auto, enable, disable"},
       {R"("vf":{"min_tx_rate":2,"max_tx_rate":1})",
        "vf`: min_tx_rate 2 is above max_tx_rate 1; write a lower min_tx_rate, or max_tx_rate 0 for no limit"},
       {R"("vf":{"node_guid":"00:00:00:00:00:00:00:00"})", "vf.node_guid`: `00:00:00:00:00:00:00:00`" + guid},
       {R"("vf":{"port_guid":"0011:2233:4455:6677"})", "vf.port_guid`: `0011:2233:4455:6677`" + guid},
       {R"("vf":{"spoof":true})",
        "vf.spoof`: unknown key; write one of: mac, vlan, qos, vlan_protocol, trust, spoofchk, link_state, "
        "min_tx_rate, max_tx_rate, node_guid, port_guid, macs, guids"},
       {R"("mode":"shared","vf":{"vlan":7})",
        "vf`: applies only to mode exclusive, but the mode is shared; remove it or write \"mode\": \"exclusive\""}},
      true);
}

TEST(HookConfigNetworks, RefusesWrongAddresses) {
  const std::string subnet = "; write a subnet of your network: \"10.1.0.0/16\" or \"fd00:1::/64\"";
  const std::string order = "; write the lower address as \"from\", and include more than the gateway";
  const char* const outside = "is not in 10.1.0.0/16; correct the address or the subnet";
  const char* const edge =
      "is the network address or the broadcast address; write an address from 10.1.0.1 to 10.1.255.254";
  const auto no_subnet = [&](const char* text, const char* why) {
    return NetworkRow{range(fmt::format(R"("subnet":"{}")", text)),
                      fmt::format("addresses[0].subnet`: `{}` {}", text, why) + subnet};
  };
  const auto wrong = [](const char* key, const char* address, const char* why) {
    return NetworkRow{range(fmt::format(R"("subnet":"10.1.0.0/16","{}":"{}")", key, address)),
                      fmt::format("addresses[0].{}`: {} {}", key, address, why)};
  };
  expect_problems(
      {{range(""), "addresses[0]`: has no subnet; add \"subnet\": \"10.1.0.0/16\""},
       no_subnet("10.1.0.0", "is not a subnet"),
       no_subnet("10.1.0.0/33", "is not a subnet"),
       no_subnet("0.0.0.0/0", "has no addresses for containers"),
       no_subnet("::/90", "has no addresses for containers"),
       no_subnet("127.1.0.0/16", "has no addresses for containers"),
       no_subnet("239.0.0.0/8", "has no addresses for containers"),
       no_subnet("fe80::/64", "has no addresses for containers"),
       no_subnet("ff05::/64", "has no addresses for containers"),
       no_subnet("192.0.2.0/24", "is in a range for documentation (RFC 5737)"),
       no_subnet("198.51.100.64/26", "is in a range for documentation (RFC 5737)"),
       no_subnet("203.0.113.0/24", "is in a range for documentation (RFC 5737)"),
       no_subnet("2001:db8::/32", "is in a range for documentation (RFC 3849)"),
       no_subnet("2001:db8:9::/64", "is in a range for documentation (RFC 3849)"),
       no_subnet("3fff::/20", "is in a range for documentation (RFC 9637)"),
       no_subnet("3fff:fff::/32", "is in a range for documentation (RFC 9637)"),
       {range(R"("subnet":"10.1.0.1/16")"),
        "addresses[0].subnet`: `10.1.0.1/16` has host bits set; write \"10.1.0.0/16\""},
       {range(R"("subnet":"::ffff:0:0/90")"),
        "addresses[0].subnet`: `::ffff:0:0/90` has host bits set; write \"::ffc0:0:0/90\""},
       {range(R"("subnet":"10.1.0.0/16","from":"10.1.0.x")"),
        "addresses[0].from`: `10.1.0.x` is not an address; write it as \"10.1.1.10\" or \"fd00:1::10\""},
       wrong("from", "10.2.0.1", outside),
       wrong("to", "fd00::1", outside),
       wrong("gateway", "10.0.0.1", outside),
       wrong("from", "10.1.0.0", edge),
       wrong("to", "10.1.255.255", edge),
       {range(R"("subnet":"10.1.0.0/16","from":"10.1.0.9","to":"10.1.0.8")"),
        "addresses[0].to`: no address for containers from 10.1.0.9 to 10.1.0.8" + order},
       {range(R"("subnet":"10.1.0.4/32","gateway":"10.1.0.4")"),
        "addresses[0]`: no address for containers from 10.1.0.5 to 10.1.0.3" + order},
       {range(R"("subnet":"10.1.0.0/16","from":"10.1.0.9","to":"10.1.0.9","gateway":"10.1.0.9")"),
        "addresses[0].to`: no address for containers from 10.1.0.9 to 10.1.0.9" + order},
       {range(R"("subnet":"10.1.0.0/16","rail":65536)"),
        "addresses[0].rail`: 65536 is not a valid number here; write a whole number from 0 to 65535, without "
        "quotes"},
       {R"("addresses":["10.1.0.0/16"])",
        "addresses[0]`: expected an object, found a text; write it in braces: { ... }"},
       {R"("addresses":{"subnet":"10.1.0.0/16"})",
        "addresses`: expected a list, found an object; write it in brackets: [ ... ]"}},
      true);
}

TEST(HookConfigNetworks, RefusesOverlappingRanges) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"("addresses":[{)" + first + "},{" + second + "}]";
  };
  const std::string overlap =
      "addresses[1]`: overlaps the range from 10.1.0.1 to 10.1.255.254; write ranges that do not overlap";
  expect_problems(
      {{two(R"("subnet":"10.1.0.0/16")", R"("subnet":"10.1.0.0/16")"), overlap},
       {two(R"("subnet":"10.1.0.0/16")", R"("rail":1,"subnet":"10.1.2.0/24")"), overlap},
       {two(R"("rail":0,"subnet":"10.1.0.0/16")", R"("rail":1,"subnet":"10.0.0.0/8","from":"10.1.255.254")"), overlap}},
      true);
  const std::string twice =
      "addresses[1]`: a rail gets an address from each of these two ranges, so two of this family; "
      "write a different \"rail\" for each range, or merge the ranges";
  expect_problems({{two(R"("subnet":"10.1.0.0/16")", R"("rail":1,"subnet":"10.2.0.0/16")"), twice},
                   {two(R"("rail":1,"subnet":"10.1.0.0/16")", R"("rail":1,"subnet":"10.2.0.0/16")"), twice}},
                  false);
  EXPECT_EQ(network(two(R"("rail":0,"subnet":"10.1.0.0/16")", R"("rail":1,"subnet":"10.2.0.0/16")")).ranges.size(), 2U);
  EXPECT_EQ(network(two(R"("subnet":"10.1.0.0/16")", R"("subnet":"fd00::/64")")).ranges.size(), 2U);
}

TEST(HookConfigNetworks, RefusesWrongIpam) {
  const std::string name =
      " is not the name of a CNI plugin; write the plugin's file name without its directory: \"host-local\"";
  const std::string path =
      " is not an absolute path; write the directory of the CNI plugins: \"/opt/cni/bin\", in Debian \"/usr/lib/cni\"";
  expect_problems({{R"("ipam":{})", "ipam`: has no type; add the plugin's file name: \"type\": \"host-local\""},
                   {R"("ipam":"host-local")", "ipam`: expected an object, found a text; write it in braces: { ... }"},
                   {R"("ipam":{"type":"../host-local"})", "ipam.type`: `../host-local`" + name},
                   {R"("ipam":{"type":".."})", "ipam.type`: `..`" + name},
                   {R"("ipam":{"type":7})", "ipam.type`: expected a text, found a number; write it in quotes"},
                   {R"("ipam":{"type":"host-local"},"ipam_dir":"cni")", "ipam_dir`: `cni`" + path},
                   {R"("ipam":{"type":"host-local"},"ipam_dir":"/opt/../tmp")", "ipam_dir`: `/opt/../tmp`" + path},
                   {R"("ipam":{"type":"host-local"},"addresses":[{"subnet":"10.1.0.0/16"}])",
                    "ipam`: cannot be combined with \"addresses\"; remove one of the two"}},
                  true);
}

TEST(HookConfigNetworks, WarnsAboutProbableMistakes) {
  expect_problems(
      {{R"("ipam_dir":"/usr/lib/cni")",
        "ipam_dir`: has no effect without \"ipam\" except for recorded leases; remove it when all leases are "
        "released"},
       {R"("routing":{"first_table":250})",
        "routing.first_table`: only 3 rails get a routing table: the kernel reserves the tables 253 to 255; "
        "begin at 237 or below"},
       {R"("routing":{"first_table":238})",
        "routing.first_table`: only 15 rails get a routing table: the kernel reserves the tables 253 to 255; "
        "begin at 237 or below"},
       {R"("routing":{"first_table":4294967295})",
        "routing.first_table`: only 1 rails get a routing table: no table has a higher number; begin at a lower table, "
        "e.g. 100"}},
      false);
  EXPECT_EQ(network(R"("routing":{"first_table":237})").first_table, 237U);
  EXPECT_EQ(network(R"("routing":{"first_table":4294967280})").first_table, 4294967280U);
}

// Names of networks become names of directories.
TEST(HookConfigNetworks, RefusesNamesThatArePaths) {
  for (const char* name : {".", ".."}) {
    const auto parsed = parse_config({{"c", fmt::format(R"({{"networks":{{"{}":{{}}}}}})", name)}});
    EXPECT_EQ(problems_of(parsed),
              fmt::format("c:1: error: `networks.{0}`: `{0}` is not a valid name; write 1 to 63 of the "
                          "characters A-Z a-z 0-9 _ . -\n",
                          name));
  }
}

}  // namespace
}  // namespace hook
