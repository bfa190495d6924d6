// What is configured on a rail, in which order, and how rails are called.
#include "hook/rails/plan/rails.hpp"

#include <gtest/gtest.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>

#include "fabric/text.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

using fabric::netlink::Message;
using test_support::address;
using Strings = std::vector<std::string>;

constexpr unsigned kPriority = 32000;

Strings texts(const std::vector<NetRecord>& records) {
  Strings all;
  for (const NetRecord& record : records)
    all.push_back(to_string(record));
  return all;
}

template <typename Header>
std::uint32_t number_of(const NetRecord& record, unsigned attribute) {
  return Message{record.type, record.payload}.attributes(sizeof(Header)).u32(attribute).value_or(0);
}

Rail rail_with(std::vector<RailAddress> addresses, std::optional<unsigned> table) {
  Rail rail;
  rail.name = "net1";
  rail.addresses = std::move(addresses);
  rail.table = table;
  return rail;
}

struct ConfigRow {
  const char* name;
  std::vector<RailAddress> addresses;
  std::optional<unsigned> table;
  Strings made;
  Strings routes;
};

TEST(RailConfig, Table) {
  const RailAddress ipv4{address("10.1.7.77"), 20, address("10.1.0.1")};
  const RailAddress ipv6{address("fd00:7::77"), 61, address("fd00:7::1")};
  const ConfigRow rows[] = {
      {"none", {}, 100, {}, {}},
      {"no table of its own", {ipv4, ipv6}, std::nullopt, {"10.1.7.77/20", "fd00:7::77/61"}, {}},
      {"a table",
       {ipv4},
       100,
       {"10.1.7.77/20"},
       {"10.1.0.0/20 table 100 scope link src 10.1.7.77", "default via 10.1.0.1 table 100 src 10.1.7.77",
        "from 10.1.7.77 lookup 100"}},
      {"no gateway",
       {{address("10.1.7.77"), 24, std::nullopt}},
       1000,
       {"10.1.7.77/24"},
       {"10.1.7.0/24 table 1000 scope link src 10.1.7.77", "from 10.1.7.77 lookup 1000"}},
      {"a host's prefix",
       {{address("10.1.7.77"), 32, std::nullopt}},
       100,
       {"10.1.7.77/32"},
       {"10.1.7.77 table 100 scope link src 10.1.7.77", "from 10.1.7.77 lookup 100"}},
      {"IPv6",
       {ipv6},
       100,
       {"fd00:7::77/61"},
       {"fd00:7::/61 table 100 src fd00:7::77", "default via fd00:7::1 table 100 src fd00:7::77",
        "from fd00:7::77 lookup 100"}},
      {"both families",
       {{address("10.1.7.77"), 24, std::nullopt}, {address("fd00::1"), 128, std::nullopt}},
       100,
       {"10.1.7.77/24", "fd00::1/128"},
       {"10.1.7.0/24 table 100 scope link src 10.1.7.77", "from 10.1.7.77 lookup 100", "fd00::1 table 100 src fd00::1",
        "from fd00::1 lookup 100"}},
  };
  for (const ConfigRow& row : rows) {
    SCOPED_TRACE(row.name);
    const auto config = configure_rail(rail_with(row.addresses, row.table), 5, kPriority, {});
    EXPECT_EQ(texts(config.addresses), row.made);
    EXPECT_EQ(texts(config.routes), row.routes);
  }
}

TEST(RailConfig, AllIsOfThisNetdev) {
  const auto config =
      configure_rail(rail_with({{address("10.1.7.77"), 24, address("10.1.7.1")}}, 100), 5, kPriority, {});
  ASSERT_EQ(config.routes.size(), 3U);
  EXPECT_EQ(reinterpret_cast<const ifaddrmsg*>(config.addresses[0].payload.data())->ifa_index, 5U);
  EXPECT_EQ(number_of<rtmsg>(config.routes[0], RTA_OIF), 5U);
  EXPECT_EQ(number_of<rtmsg>(config.routes[1], RTA_OIF), 5U);
  EXPECT_EQ(number_of<fib_rule_hdr>(config.routes[2], FRA_PRIORITY), kPriority);
}

TEST(RailConfig, TheMainTableIsLeftAloneOnlyForATableOfItsOwn) {
  const auto flags = [](std::optional<unsigned> table) {
    const auto config = configure_rail(rail_with({{address("fd00::1"), 64, std::nullopt}}, table), 5, kPriority, {});
    return number_of<ifaddrmsg>(config.addresses.at(0), IFA_FLAGS);
  };
  EXPECT_EQ(flags(std::nullopt), std::uint32_t{IFA_F_NODAD});
  EXPECT_EQ(flags(100), std::uint32_t{IFA_F_NODAD | IFA_F_NOPREFIXROUTE});
}

TEST(RailConfig, WhatItsNetdevHadOnTheNode) {
  RouteSpec route;
  route.ifindex = 3;
  route.gateway = address("10.1.7.1");
  const std::vector<NetRecord> carried = {address_record(3, address("10.1.7.2"), 24),
                                          address_record(3, address("fd00::2"), 64), route_record(route),
                                          rule_record(address("10.1.7.2"), 70, 5)};
  const auto config = configure_rail(rail_with({}, std::nullopt), 9, kPriority, carried);
  EXPECT_EQ(texts(config.addresses), (Strings{"10.1.7.2/24", "fd00::2/64"}));
  EXPECT_EQ(texts(config.routes), (Strings{"default via 10.1.7.1", "from 10.1.7.2 lookup 70"}));
  EXPECT_EQ(number_of<rtmsg>(config.routes.at(0), RTA_OIF), 9U);
  EXPECT_EQ(number_of<fib_rule_hdr>(config.routes.at(1), FRA_PRIORITY), 5U);
  // A table of its own comes on top.
  const auto tabled = configure_rail(rail_with({}, 101), 9, kPriority, carried);
  EXPECT_EQ(texts(tabled.addresses), (Strings{"10.1.7.2/24", "fd00::2/64"}));
  EXPECT_EQ(texts(tabled.routes),
            (Strings{"default via 10.1.7.1", "from 10.1.7.2 lookup 70", "10.1.7.0/24 table 101 scope link src 10.1.7.2",
                     "from 10.1.7.2 lookup 101", "fd00::/64 table 101 src fd00::2", "from fd00::2 lookup 101"}));
  // Addresses of config.json are instead of it.
  const auto own =
      configure_rail(rail_with({{address("10.2.0.2"), 16, std::nullopt}}, std::nullopt), 9, kPriority, carried);
  EXPECT_EQ(texts(own.addresses), Strings{"10.2.0.2/16"});
  EXPECT_EQ(texts(own.routes), Strings());
}

struct GidRow {
  Strings addresses;
  const char* expected;
};

TEST(GidAddress, Table) {
  const GidRow rows[] = {{{}, "none"},
                         {{"10.1.0.2"}, "10.1.0.2"},
                         {{"fd00::2", "10.1.0.2"}, "10.1.0.2"},
                         {{"10.1.0.2", "10.1.0.3", "fd00::2"}, "10.1.0.2"},
                         {{"fe80::1", "fd00::2", "fd00::3"}, "fd00::2"},
                         {{"fe80::1"}, "none"},
                         {{"127.0.0.1", "::1"}, "none"}};
  for (const GidRow& row : rows) {
    RailConfig config;
    for (const std::string& text : row.addresses)
      config.addresses.push_back(address_record(3, address(text), 32));
    const auto found = gid_address(config);
    EXPECT_EQ(found ? fabric::to_string(*found) : "none", row.expected) << testing::PrintToString(row.addresses);
  }
  RailConfig odd;
  odd.addresses.push_back(rule_record(address("10.1.0.2"), 1, 1));
  EXPECT_EQ(gid_address(odd), std::nullopt);
}

struct NameRow {
  const char* pattern;
  Strings taken;
  unsigned rails;
  Strings expected;
};

TEST(NameRails, Table) {
  const NameRow rows[] = {{"net%d", {}, 0, {}},
                          {"net%d", {}, 3, {"net1", "net2", "net3"}},
                          {"net%d", {"lo", "eth0", "net2"}, 3, {"net1", "net3", "net4"}},
                          {"net%d", {"net1", "net2", "net3"}, 1, {"net4"}},
                          {"r%dx", {"r1", "r1x"}, 2, {"r2x", "r3x"}},
                          {"%d%d", {}, 1, {"1%d"}},
                          {"rdma", {"rdma"}, 1, {"rdma"}}};
  for (const NameRow& row : rows) {
    std::vector<Rail> rails(row.rails);
    name_rails(row.pattern, row.taken, rails);
    Strings names;
    for (const Rail& rail : rails)
      names.push_back(rail.name);
    EXPECT_EQ(names, row.expected) << row.pattern;
  }
}

TEST(NameRails, ManyRails) {
  std::vector<Rail> rails(12);
  name_rails("net%d", {"net10"}, rails);
  EXPECT_EQ(rails[8].name, "net9");
  EXPECT_EQ(rails[9].name, "net11");
  EXPECT_EQ(rails[11].name, "net13");
}

}  // namespace
}  // namespace hook
