#include "fabric/address.hpp"

#include <gtest/gtest.h>

#include "fabric/selectors.hpp"
#include "support/inventories.hpp"

namespace {

using namespace fabric;
using test_support::address;

TEST(ParseAddress, AcceptsTheFormsOfSysfsAndOfUsers) {
  // `gid` is nullptr where the text is refused.
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"dotted", "10.0.0.2", "0000:0000:0000:0000:0000:ffff:0a00:0002"},
      {"sysfs", "fe80:0000:0000:0000:0007:10ff:fefc:c1e2", "fe80:0000:0000:0000:0007:10ff:fefc:c1e2"},
      {"short", "fd00::1", "fd00:0000:0000:0000:0000:0000:0000:0001"},
      {"mapped", "::ffff:10.0.0.2", "0000:0000:0000:0000:0000:ffff:0a00:0002"},
      {"zero", "::", "0000:0000:0000:0000:0000:0000:0000:0000"},
      {"longest", "0000:0000:0000:0000:0000:ffff:255.255.255.255", "0000:0000:0000:0000:0000:ffff:ffff:ffff"},
      {"empty", "", nullptr},
      {"blank in front", " 10.0.0.2", nullptr},
      {"prefix", "10.0.0.2/24", nullptr},
      {"zone", "fe80::1%eth0", nullptr},
      {"three parts", "10.0.2", nullptr},
      {"octet too large", "10.0.0.256", nullptr},
      {"word", "eth0", nullptr},
      {"too long", "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000", nullptr}};
  for (const auto& [name, text, gid] : rows) {
    SCOPED_TRACE(name);
    const auto parsed = fabric::parse_address(text);
    ASSERT_EQ(parsed.has_value(), gid != nullptr);
    if (!parsed) continue;
    EXPECT_EQ(to_gid_string(*parsed), gid);
  }
  EXPECT_FALSE(fabric::parse_address(std::string_view("10.0.0.2\0.3", 11))) << "a zero byte does not end the address";
}

TEST(AddressText, IsDottedForIpv4AndShortestForIpv6) {
  EXPECT_EQ(to_string(address("::ffff:192.168.1.1")), "192.168.1.1");
  EXPECT_EQ(to_string(address("fd00:0:0:1::1")), "fd00:0:0:1::1");
  EXPECT_EQ(to_string(Address{}), "::");
}

TEST(AddressClass, DetectsZeroIpv4LinkLocalAndLoopback) {
  const struct {
    const char* text;
    bool zero, ipv4, link_local, loopback;
  } rows[] = {{"::", true, false, false, false},          {"10.0.0.1", false, true, false, false},
              {"0.0.0.0", false, true, false, false},     {"127.0.0.1", false, true, false, true},
              {"169.254.1.1", false, true, false, false}, {"fe80::1", false, false, true, false},
              {"febf::1", false, false, true, false},     {"fec0::1", false, false, false, false},
              {"fd00::1", false, false, false, false},    {"::1", false, false, false, true},
              {"::2", false, false, false, false}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    const Address parsed = address(row.text);
    EXPECT_EQ(parsed.is_zero(), row.zero);
    EXPECT_EQ(parsed.is_ipv4(), row.ipv4);
    EXPECT_EQ(parsed.is_link_local(), row.link_local);
    EXPECT_EQ(parsed.is_loopback(), row.loopback);
    EXPECT_EQ(parsed.family(), row.ipv4 ? Family::kIpv4 : Family::kIpv6);
  }
}

TEST(AddressClass, DetectsIpv4LinkLocal) {
  const std::pair<const char*, bool> rows[] = {
      {"169.254.0.0", true},   {"169.254.255.255", true}, {"169.253.255.255", false}, {"169.255.0.0", false},
      {"10.169.254.1", false}, {"fe80::a9fe:1", false},   {"::169.254.1.1", false},   {"fe80::", false}};
  for (const auto& [text, expected] : rows)
    EXPECT_EQ(address(text).is_ipv4_link_local(), expected) << text;
}

TEST(ParseCidr, ReadsNetworksAndSingleAddresses) {
  // `printed` is nullptr where the text is refused.
  const std::tuple<const char*, const char*, unsigned> rows[] = {
      {"10.0.0.0/8", "10.0.0.0/8", 104},
      {"10.1.2.3/8", "10.1.2.3/8", 104},
      {"10.1.2.3", "10.1.2.3/32", 128},
      {"0.0.0.0/0", "0.0.0.0/0", 96},
      {"fd00::/8", "fd00::/8", 8},
      {"::/0", "::/0", 0},
      {"fd00::1", "fd00::1/128", 128},
      {"::ffff:10.0.0.0/104", "10.0.0.0/8", 104},
      {"10.0.0.0/33", nullptr, 0},
      {"fd00::/129", nullptr, 0},
      {"10.0.0.0/", nullptr, 0},
      {"10.0.0.0/-1", nullptr, 0},
      {"10.0.0.0/+8", nullptr, 0},
      {"10.0.0.0/8 ", nullptr, 0},
      {"10.0.0.0/8/8", nullptr, 0},
      {"/8", nullptr, 0},
      {"", nullptr, 0},
      {"10.0.0.0/99999999999", nullptr, 0},
  };
  for (const auto& [text, printed, prefix] : rows) {
    SCOPED_TRACE(text);
    const auto cidr = fabric::parse_cidr(text);
    ASSERT_EQ(cidr.has_value(), printed != nullptr);
    if (!cidr) continue;
    EXPECT_EQ(to_string(*cidr), printed);
    EXPECT_EQ(cidr->prefix, prefix);
  }
}

TEST(CidrContains, ComparesTheBitsOfThePrefix) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
      {"10.128.0.0/9", "10.128.0.1", "10.127.255.255"},
      {"192.168.1.4/30", "192.168.1.7", "192.168.1.8"},
      {"192.168.1.4/31", "192.168.1.5", "192.168.1.6"},
      {"192.168.1.4", "192.168.1.4", "192.168.1.5"},
      {"0.0.0.0/0", "255.1.2.3", "::1"},
      {"fd00::/8", "fdff::1", "fc00::1"},
      {"fe80::/10", "febf::1", "fec0::1"},
      {"fd00:0:0:1::/64", "fd00:0:0:1:ffff::1", "fd00::1"},
      {"10.1.2.3/8", "10.9.9.9", "fd00::1"}};
  for (const auto& [text, inside, outside] : rows) {
    SCOPED_TRACE(text);
    const auto cidr = fabric::parse_cidr(text);
    ASSERT_TRUE(cidr);
    EXPECT_TRUE(cidr->contains(address(inside)));
    EXPECT_FALSE(cidr->contains(address(outside)));
  }
  EXPECT_TRUE((Cidr{Address{}, 0}.contains(address("10.0.0.1"))));
}

TEST(CommonPrefix, IsTheLongestPrefixOfAllAddresses) {
  // `expected` is nullptr where there is no such prefix.
  const std::tuple<const char*, std::vector<const char*>, const char*> rows[] = {
      {"none", {}, nullptr},
      {"one", {"10.0.0.1"}, "10.0.0.1/32"},
      {"neighbours", {"10.0.0.2", "10.0.0.3"}, "10.0.0.2/31"},
      {"rails", {"10.1.0.1", "10.1.1.1", "10.1.2.1", "10.1.3.1"}, "10.1.0.0/22"},
      {"nothing in common", {"10.0.0.1", "192.168.0.1"}, "0.0.0.0/0"},
      {"ipv6", {"fd00:0:0:1::1", "fd00:0:0:2::1"}, "fd00::/62"},
      {"both families", {"10.0.0.1", "fd00::1"}, nullptr}};
  for (const auto& [name, texts, expected] : rows) {
    SCOPED_TRACE(name);
    std::vector<Address> addresses;
    for (const char* text : texts)
      addresses.push_back(address(text));
    const auto cidr = fabric::common_prefix(addresses);
    ASSERT_EQ(cidr.has_value(), expected != nullptr);
    if (!cidr) continue;
    EXPECT_EQ(to_string(*cidr), expected);
    for (const Address& one : addresses)
      EXPECT_TRUE(cidr->contains(one));
  }
}

fabric::Hca device() {
  fabric::Hca hca =
      test_support::hca("mlx5_1", 1, {test_support::infiniband_port(1), test_support::infiniband_port(2)});
  hca.pci = "0000:1a:00.0";
  hca.node_guid = "a088:c203:0010:f0a0";
  return hca;
}

TEST(Selectors, SelectTheNamedPorts) {
  const std::tuple<const char*, unsigned, bool> rows[] = {{"mlx5_1", 1, true},
                                                          {"mlx5_1", 2, true},
                                                          {"mlx5_1:1", 1, true},
                                                          {"mlx5_1:1", 2, false},
                                                          {"mlx5", 1, false},
                                                          {"mlx5_10", 1, false},
                                                          {"mlx5_*", 2, true},
                                                          {"*:2", 1, false},
                                                          {"*:2", 2, true},
                                                          {"mlx4_0, mlx5_1", 1, true},
                                                          {"^mlx5_1", 1, false},
                                                          {"^mlx5_1:2", 1, true},
                                                          {"^mlx5_1:2", 2, false},
                                                          {"^mlx4_0,mlx5_9", 1, true},
                                                          {"netdev:rail1", 1, true},
                                                          {"netdev:bond0", 1, true},
                                                          {"netdev:rail*", 1, true},
                                                          {"netdev:eth0", 1, false},
                                                          {"^netdev:bond*", 1, false},
                                                          {"pci:0000:1a:00.0", 1, true},
                                                          {"pci:1a:00.0", 1, true},
                                                          {"pci:0000:1a:*", 1, true},
                                                          {"pci:1b:00.0", 1, false},
                                                          {"guid:a088:c203:0010:f0a0", 1, true},
                                                          {"guid:A088C2030010F0A0", 1, true},
                                                          {"guid:0xa088c2030010f0a0", 1, true},
                                                          {"guid:a088c203*", 1, true},
                                                          {"guid:a088c2030010f0a1", 1, false}};
  const fabric::Hca hca = device();
  for (const auto& [text, port, selected] : rows) {
    SCOPED_TRACE(text);
    const auto list = parse_selectors(text);
    ASSERT_TRUE(list) << list.error().message;
    EXPECT_EQ(list->text, text);
    EXPECT_EQ(selects(*list, hca, hca.ports[port - 1], {"rail1", "bond0"}), selected);
  }
}

TEST(Selectors, NeverMatchAPciAddressOfASoftwareDevice) {
  fabric::Hca hca = device();
  hca.pci.reset();
  EXPECT_FALSE(selects(*parse_selectors("pci:*"), hca, hca.ports[0], {}));
}

TEST(Selectors, NameTheEntryInErrors) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "``: empty selector"},
      {"^", "``: empty selector"},
      {"mlx5_0,", "``: empty selector"},
      {",mlx5_0", "``: empty selector"},
      {":1", "`:1`: empty selector"},
      {"netdev:", "`netdev:`: empty selector"},
      {"guid:", "`guid:`: empty selector"},
      {"guid:zz", "`guid:zz`: empty selector"},
      {"=mlx5_0", "`=mlx5_0`: names are always exact; remove the `=`"},
      {"^=mlx5_0", "`^=mlx5_0`: names are always exact; remove the `=`"},
      {"mlx5_0:x", "`mlx5_0:x`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"mlx5_0:0", "`mlx5_0:0`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"mlx5_0:", "`mlx5_0:`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"a\x1b:x", "`a?:x`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"}};
  for (const auto& [text, message] : rows) {
    SCOPED_TRACE(text);
    const auto list = parse_selectors(text);
    ASSERT_FALSE(list);
    EXPECT_EQ(list.error().message, message);
  }
}

}  // namespace
