// NCCL's own rules. Each row was read in NCCL's sources (tags 2.21.5 to 2.30.7), or recorded from a run of its
// selection code on such tables.
#include "init/nccl_rules.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/inventories.hpp"

namespace {

using fabric::GidEntry;
using namespace init::nccl;
using namespace test_support;

constexpr Version kOld{2, 30, 4};
constexpr Version kNew{2, 30, 7};

TEST(ParseVersion, AcceptsTagsAndPackageVersions) {
  const std::pair<const char*, std::optional<Version>> rows[] = {{"2.21.5", Version{2, 21, 5}},
                                                                 {"2.21.5-1", Version{2, 21, 5}},
                                                                 {"2.30.7+cuda12.8", Version{2, 30, 7}},
                                                                 {"2.21", Version{2, 21, 0}},
                                                                 {"2", std::nullopt},
                                                                 {"", std::nullopt},
                                                                 {"v2.21.5", std::nullopt},
                                                                 {"2.21.5.1", std::nullopt},
                                                                 {"2.x.5", std::nullopt},
                                                                 {"2.-1.5", std::nullopt},
                                                                 {"2.99999999999.1", std::nullopt}};
  for (const auto& [text, version] : rows)
    EXPECT_EQ(init::nccl::parse_version(text), version) << text;
  EXPECT_EQ(init::nccl::to_string(Version{2, 21, 5}), "2.21.5");
}

TEST(HcaList, SelectsAsNcclDoes) {
  const struct {
    const char *name, *value, *hca;
    unsigned port;
    bool matches;
    Version version = kNew;
  } rows[] = {{"empty takes all", "", "mlx5_0", 1, true},
              {"= alone takes all", "=", "mlx5_0", 1, true},
              {"^ alone takes nothing", "^", "mlx5_0", 1, false},
              {"^= alone takes nothing", "^=", "mlx5_0", 1, false},
              {"prefix", "mlx5_1", "mlx5_10", 1, true},
              {"prefix of the family", "mlx5", "mlx5_10", 2, true},
              {"exact", "=mlx5_1", "mlx5_10", 1, false},
              {"exact hit", "=mlx5_1", "mlx5_1", 1, true},
              {"exclude by prefix", "^mlx5_1", "mlx5_10", 1, false},
              {"exclude leaves others", "^mlx5_1", "mlx5_2", 1, true},
              {"exclude exactly", "^=mlx5_1", "mlx5_10", 1, true},
              {"exclude exactly, hit", "^=mlx5_1,mlx5_2", "mlx5_2", 1, false},
              {"=^ is a name", "=^a", "a", 1, false},
              {"= is no part of later entries", "=a,=b", "b", 1, false},
              {"second = names a device", "=a,=b", "=b", 1, true},
              {"empty entries are skipped", "a,,b,", "b", 1, true},
              {"an entry without a name is skipped", "=:1", "x", 2, true},
              {"an entry without a name before one", ":1,a", "b", 1, false},
              {"an entry without a name in an exclude list", "^:1,a", "b", 1, true},
              {"the port is an int", "=a:4294967297", "a", 1, true},
              {"nothing but commas takes all", ",,", "x", 1, true},
              {"no trimming", "=a, b", "b", 1, false},
              {"semicolon is a character", "=a;b", "a", 1, false},
              {"plus is a character", "=a+b", "a", 1, false},
              {"a word is a name", "none", "mlx5_0", 1, false},
              {"port", "=mlx5_0:2", "mlx5_0", 2, true},
              {"other port", "=mlx5_0:2", "mlx5_0", 1, false},
              {"port 0 is no port", "=mlx5_1:0", "mlx5_1", 1, false},
              {"word for a port is port 0", "=mlx5_1:x", "mlx5_1", 1, false},
              {"-1 is every port", "=mlx5_1:-1", "mlx5_1", 2, true},
              {"trailing text of a port", "=mlx5_1:1x", "mlx5_1", 1, true},
              {"empty port, new parser", "=mlx5_1:", "mlx5_1", 1, true},
              {"empty port, old parser", "=mlx5_1:", "mlx5_1", 1, false, kOld},
              {"rail and plane, new parser", "=mlx5_1:1:0:0", "mlx5_1", 1, true},
              {"rail and plane, old parser", "=mlx5_1:1:0:0", "mlx5_1", 1, true, kOld},
              {"empty port before rail, new parser", "=mlx5_0::0:0", "mlx5_0", 1, true},
              {"empty port before rail, old parser", "=mlx5_0::0:0", "mlx5_0", 1, false, kOld},
              {"2.30.5 has the new parser", "=mlx5_1:", "mlx5_1", 1, true, Version{2, 30, 5}},
              {"prefix with port", "mlx5_1:1", "mlx5_10", 2, false}};
  for (const auto& row : rows)
    EXPECT_EQ(parse_hca_list(row.value, row.version).matches(row.hca, row.port), row.matches) << row.name;
}

TEST(HcaList, IgnoresEntriesAfterThirtyTwo) {
  std::string names;
  for (int i = 0; i < 40; ++i)
    names += "dev" + std::to_string(i) + ",";
  EXPECT_EQ(parse_hca_list("=" + names).entries.size(), 32U);
  EXPECT_FALSE(parse_hca_list("=" + names).matches("dev32", 1)) << "the 33rd entry is ignored";
  EXPECT_TRUE(parse_hca_list("^=" + names).matches("dev32", 1)) << "an exclude list does not exclude the 33rd entry";
  EXPECT_FALSE(parse_hca_list("^=" + names).matches("dev31", 1));
}

TEST(HcaList, CutsNamesAtTheBufferOfNccl) {
  const std::string name(63, 'a');
  EXPECT_TRUE(parse_hca_list("=" + name + "bcd").matches(name, 1));
}

TEST(ParseParam, ParsesAsStrtollDoes) {
  for (const auto& [text, value] : {std::pair("3", 3L),
                                    {"0x10", 16},
                                    {"010", 8},
                                    {"3x", 3},
                                    {"auto", 0},
                                    {" 3", 3},
                                    {"-1", -1},
                                    {"", -7},
                                    {"99999999999999999999", -7},
                                    {"+5", 5}})
    EXPECT_EQ(init::nccl::parse_param(text, -7), value) << text;
}

TEST(ParseGidRules, ReadsTheVariablesAsNcclDoes) {
  using fabric::Family;
  EXPECT_EQ(parse_gid_rules("", "", "").family, Family::kIpv4);
  EXPECT_EQ(parse_gid_rules("AF_INET6", "", "").family, Family::kIpv6);
  EXPECT_EQ(parse_gid_rules("af_inet6", "", "").family, Family::kIpv4) << "any other text is AF_INET";
  EXPECT_EQ(parse_gid_rules("", "", "1").roce_version, 1);
  EXPECT_EQ(parse_gid_rules("", "", "").roce_version, 2);
  EXPECT_TRUE(parse_gid_rules("", "10.0.0.0/8", "").range);
  EXPECT_TRUE(parse_gid_rules("AF_INET6", "fd00::/8", "").range);
  for (const char* ignored : {"", "10.0.0.0", "x/8", "10.0.0.0/33", "fd00::/8"})
    EXPECT_FALSE(parse_gid_rules("", ignored, "").range) << ignored;
  for (const char* cut : {"10.1.0.0/16,10.2.0.0/16", "10.1.0.0/16 ", "10.1.0.0/16\t", "10.1.0.0/16x", "10.1.0.0/16;",
                          "10.1.0.0/16/8", "10.1.0.0/ 16"})
    EXPECT_EQ(parse_gid_rules("", cut, "").range, fabric::parse_cidr("10.1.0.0/16")) << cut;
  EXPECT_EQ(parse_gid_rules("", "10.1.0.0/x", "").range, fabric::parse_cidr("10.1.0.0/0"));
  EXPECT_FALSE(parse_gid_rules("", "::ffff:10.1.0.0/112", "").range);
  EXPECT_FALSE(parse_gid_rules("AF_INET6", "10.1.0.0/16", "").range);
  EXPECT_TRUE(parse_gid_rules("AF_INET6", "::ffff:10.1.0.0/112", "").range)
      << "a network of AF_INET6, although it contains no GID of that family";
}

TEST(NcclRules, TruncateTheFixedIndexToInt) {
  EXPECT_EQ(init::nccl::parse_index("-4294967293"), 3);
  EXPECT_EQ(init::nccl::parse_index("4294967295"), -1);
  EXPECT_EQ(init::nccl::parse_index(""), -1);
}

// Tables. Own addresses are 10.x; addresses of the host or of other containers are 192.168.x.
struct Case {
  const char* name;
  std::vector<GidEntry> gids;
  GidRules rules;
  std::optional<unsigned> index;
  bool uncertain = false;
};

GidRules ipv6(GidRules rules = {}) {
  rules.family = fabric::Family::kIpv6;
  return rules;
}

GidRules version(unsigned minor, unsigned patch = 0, GidRules rules = {}) {
  rules.version = {2, minor, patch};
  return rules;
}

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const auto choice = choose_gid(test_support::ethernet_port(one.gids), one.rules);
    EXPECT_EQ(choice.index, one.index);
    EXPECT_EQ(choice.uncertain, one.uncertain);
  }
}

TEST(ChooseGid, ChoosesTheOwnGidOfOrdinaryTables) {
  check({{"usual table", test_support::usual_gids("fe80::1", "10.0.0.1"), {}, 3},
         {"empty table", {}, {}, 0},
         {"own IPv4 at 0", {v2(0, "10.0.0.1")}, {}, 0},
         {"first v2 IPv4 wins", {v2(0, "fe80::1"), v2(1, "10.0.0.1"), v2(2, "10.0.0.2")}, {}, 1},
         {"v1 first, v2 replaces it", {v1(0, "10.0.0.1"), v2(1, "10.0.0.1")}, {}, 1},
         {"v2 before v1", {v2(0, "10.0.0.1"), v1(1, "10.0.0.1")}, {}, 0},
         {"sparse table", {v1(10, "10.0.0.1"), v2(13, "10.0.0.1")}, {}, 13},
         {"global IPv6 beside IPv4", {v2(0, "fe80::1"), v2(1, "fd00::1"), v2(2, "10.0.0.1")}, {}, 2},
         {"wanted version 1", test_support::usual_gids("fe80::1", "10.0.0.1"), parse_gid_rules("", "", "1"), 2}});
}

TEST(ChooseGid, ChoosesAForeignGidInFiveCases) {
  check(
      {{"1: a foreign IPv4 at a lower index wins", {v1(0, "fe80::1"), v2(1, "192.168.0.1"), v2(4, "10.0.0.1")}, {}, 1},
       {"2: IPv6-only fabric stays at 0",
        {v1(0, "fe80::1"), v2(1, "fe80::1"), v1(2, "fd00::1"), v2(3, "fd00::1")},
        {},
        0},
       {"3: link-local only stays at 0", {v1(0, "fe80::1"), v2(1, "fe80::1")}, {}, 0},
       {"3: link-local only stays at 0, AF_INET6", {v1(0, "fe80::1"), v2(1, "fe80::1")}, ipv6(), 0},
       {"4: an IPv4 GID of v1 is taken", {v1(0, "fe80::1"), v2(1, "fe80::1"), v1(2, "10.0.0.1")}, {}, 2},
       {"5: 2.25 fails on a type it cannot read",
        {v1(0, "fe80::1"), unreadable(1, "192.168.0.1", EINVAL), v2(2, "10.0.0.1")},
        version(25),
        std::nullopt},
       {"5: 2.26 gets over it, by luck",
        {v1(0, "fe80::1"), unreadable(1, "192.168.0.1", EINVAL), v2(2, "10.0.0.1")},
        version(26),
        2,
        true}});
}

TEST(ChooseGid, DependsOnTheVersion) {
  const auto usual = test_support::usual_gids("fe80::1", "10.0.0.1");
  // NCCL takes the first IPv4 GID without reading its type, so it reads only the types after it.
  const std::vector<GidEntry> unreadable_behind = {v1(0, "fe80::1"), v2(1, "10.0.0.1"),
                                                   unreadable(2, "192.168.0.1", EINVAL)};
  check({{"2.20 takes 0", usual, version(20, 5), 0},
         {"2.18 takes 0", usual, version(18), 0},
         {"2.21", usual, version(21, 5), 3},
         {"2.25", usual, version(25, 1), 3},
         {"2.26", usual, version(26, 2), 3},
         {"2.30", usual, version(30, 7), 3},
         {"unreadable behind, 2.21", unreadable_behind, version(21, 5), std::nullopt},
         {"unreadable behind, 2.25", unreadable_behind, version(25), std::nullopt},
         {"unreadable behind, 2.26", unreadable_behind, version(26), 1},
         {"unreadable behind, 2.30", unreadable_behind, version(30, 7), 1},
         {"unreadable of the other family is not read",
          {v2(0, "10.0.0.1"), unreadable(1, "fd00::9", EINVAL)},
          version(25),
          0},
         {"unreadable link-local is not read", {v2(0, "10.0.0.1"), unreadable(1, "fe80::9", EINVAL)}, version(25), 0},
         {"an unreadable only GID is taken", {v1(0, "fe80::1"), unreadable(1, "10.0.0.1", EINVAL)}, {}, 1},
         {"an unreadable type is version -1",
          {v2(0, "10.0.0.1"), unreadable(1, "10.0.0.2", EINVAL), unreadable(2, "10.0.0.3", EINVAL)},
          parse_gid_rules("", "", "-1"),
          2,
          true},
         {"IPv6: empty slot 0 has no type, 2.25", {v2(1, "fd00::1")}, ipv6(version(25)), std::nullopt},
         {"IPv6: empty slot 0 has no type, 2.26", {v2(1, "fd00::1")}, ipv6(version(26)), 1}});
}

TEST(ChooseGid, DependsOnTheRange) {
  const std::vector<GidEntry> table = {v1(0, "fe80::1"), v2(1, "192.168.0.1"), v1(2, "10.0.0.1"), v2(3, "10.0.0.1")};
  check({{"own network", table, parse_gid_rules("", "10.0.0.0/8", ""), 3},
         {"foreign network", table, parse_gid_rules("", "192.168.0.0/16", ""), 1},
         {"both", table, parse_gid_rules("", "0.0.0.0/0", ""), 1},
         {"nothing in range stays at 0", table, parse_gid_rules("", "172.16.0.0/12", ""), 0},
         {"no slash is ignored", table, parse_gid_rules("", "10.0.0.0", ""), 1},
         {"a bad mask is ignored", table, parse_gid_rules("", "10.0.0.0/33", ""), 1},
         {"a negative mask matches nothing", table, parse_gid_rules("", "10.0.0.0/-1", ""), 0},
         {"IPv6 range",
          {v2(0, "fe80::1"), v2(1, "fd01::1"), v2(2, "fd02::1")},
          parse_gid_rules("AF_INET6", "fd02::/16", ""),
          2}});
}

TEST(ChooseGid, ChoosesIpv6WithTheFamily) {
  check({{"global address", {v1(0, "fe80::1"), v2(1, "fe80::1"), v1(2, "fd00::1"), v2(3, "fd00::1")}, ipv6(), 3},
         {"first of two", {v2(0, "fe80::1"), v2(1, "fd00::1"), v2(2, "fd00::2")}, ipv6(), 1},
         {"the wanted family leaves an IPv4 at 0", {v2(0, "10.0.0.1"), v2(1, "fd00::1")}, ipv6(), 1},
         {"leaving the other family takes link-local too",
          {v2(0, "10.0.0.1"), v1(1, "fe80::1"), v2(2, "fd00::1")},
          ipv6(),
          2},
         {"and an empty slot", {v2(0, "10.0.0.1")}, ipv6(), 1},
         {"fe80:0:0:1::1 is not in fe80::/64, so it is valid", {v1(0, "fe80::1"), v2(1, "fe80:0:0:1::1")}, ipv6(), 1}});
}

TEST(ChooseGid, EndsOnHostileTables) {
  fabric::Port port = test_support::ethernet_port({v2(0, "10.0.0.1"), v2(65535, "10.0.0.2")});
  port.gid_tbl_len = 65535;
  EXPECT_EQ(choose_gid(port, {}).index, 0U);
  EXPECT_EQ(choose_gid(port, ipv6()).index, 1U);
}

}  // namespace
