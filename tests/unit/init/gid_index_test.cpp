// The index at which the ports have a GID of their own: one for all ports, NCCL's own choice, or its choice within a
// range.
#include "init/gid_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "init/topo.hpp"
#include "support/inventories.hpp"

namespace {

using namespace fabric;
using namespace init;
using init::nccl::GidRules;
using namespace test_support;
using Indices = std::vector<std::size_t>;

GidRank rank_of(const fabric::Address& gid) {
  return gid.is_ipv4() ? GidRank::kIpv4 : gid.is_link_local() ? GidRank::kLinkLocal : GidRank::kIpv6;
}

struct PortTable {
  std::vector<GidEntry> gids;
  unsigned wanted;                  // index of the port's own GID
  std::vector<unsigned> also = {};  // indices of other own GIDs
  std::vector<unsigned> deprecated = {};
};

// Ports with these tables. The members point to each other, so the object is not copied.
class Ports {
 public:
  explicit Ports(const std::vector<PortTable>& tables) {
    for (const PortTable& table : tables) {
      init::Candidate candidate;
      for (const GidEntry& one : table.gids) {
        const bool is_also = std::find(table.also.begin(), table.also.end(), one.index) != table.also.end();
        if (one.index != table.wanted && !is_also) continue;
        const bool is_deprecated = std::ranges::find(table.deprecated, one.index) != table.deprecated.end();
        candidate.gids.push_back({one.index, one.gid, rank_of(one.gid), "net", is_deprecated});
      }
      const auto wanted = std::find_if(candidate.gids.begin(), candidate.gids.end(),
                                       [&](const auto& own) { return own.index == table.wanted; });
      hcas_.push_back(test_support::hca("mlx5_0", 0, {test_support::ethernet_port(table.gids)}));
      candidate.hca = &hcas_.back();
      candidate.port = &hcas_.back().ports[0];
      wanted_.push_back({wanted_.size(), &candidates_.emplace_back(candidate), *wanted});
    }
  }
  fabric::Port& port(std::size_t index) { return hcas_[index].ports[0]; }
  const std::vector<WantedGid>& wanted() const { return wanted_; }

 private:
  std::deque<fabric::Hca> hcas_;
  std::deque<init::Candidate> candidates_;
  std::vector<WantedGid> wanted_;
};

struct Own {
  unsigned index;
  const char* address;
  bool deprecated = false;
};
using Table = std::vector<Own>;  // table of one port, ascending index

// Each port wants its lowest GID of the rank. Its table also has a GID of another container, which NCCL would choose.
std::vector<PortTable> of_rank(const std::vector<Table>& tables, GidRank rank) {
  std::vector<PortTable> ports;
  for (const Table& table : tables) {
    const unsigned foreign = table.front().index == 1 ? 0 : 1;
    PortTable port{{v2(foreign, "10.9.0.9")}, 0};
    for (const Own& own : table) {
      port.gids.push_back(v2(own.index, own.address));
      if (port.wanted == 0 && !own.deprecated && rank_of(port.gids.back().gid) == rank) port.wanted = own.index;
      port.also.push_back(own.index);
      if (own.deprecated) port.deprecated.push_back(own.index);
    }
    ports.push_back(port);
  }
  return ports;
}

TEST(ShareIndex, ServesMostPorts) {
  const auto tables = [](auto... of_port) { return std::vector<Table>{of_port...}; };
  const auto only = [](auto... ports) { return Indices{ports...}; };
  const struct {
    const char* name;
    unsigned index;
    Indices others;
    std::vector<Table> tables;
    GidRank rank = GidRank::kIpv4;
  } rows[] = {{"one address each, one index", 3, only(), tables(Table{{3, "10.0.0.1"}}, Table{{3, "10.0.1.1"}})},
              {"the lowest of two that both have", 3, only(),
               tables(Table{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, Table{{3, "10.1.1.1"}, {5, "10.0.1.1"}})},
              {"the second of one is the first of the other", 5, only(),
               tables(Table{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, Table{{5, "10.1.1.1"}, {7, "10.0.1.1"}})},
              {"only the second ones agree", 13, only(),
               tables(Table{{3, "10.0.0.1"}, {13, "10.1.0.1"}}, Table{{5, "10.0.1.1"}, {13, "10.1.1.1"}},
                      Table{{7, "10.0.2.1"}, {13, "10.1.2.1"}}, Table{{9, "10.0.3.1"}, {13, "10.1.3.1"}})},
              {"two first ones agree, but all the second ones", 9, only(),
               tables(Table{{3, "10.0.0.1"}, {9, "10.1.0.1"}}, Table{{3, "10.0.1.1"}, {9, "10.1.1.1"}},
                      Table{{5, "10.0.2.1"}, {9, "10.1.2.1"}})},
              {"one port has no second one", 9, only(2U),
               tables(Table{{3, "10.0.0.1"}, {9, "10.1.0.1"}}, Table{{5, "10.0.1.1"}, {9, "10.1.1.1"}},
                      Table{{7, "10.0.2.1"}})},
              {"nothing in common: the lowest", 3, only(0U),
               tables(Table{{7, "10.0.0.1"}, {9, "10.1.0.1"}}, Table{{3, "10.0.1.1"}})},
              {"a tie goes to the one that more ports want", 5, only(2U, 3U),
               tables(Table{{5, "10.0.0.1"}}, Table{{5, "10.0.1.1"}}, Table{{3, "10.0.2.1"}},
                      Table{{2, "10.0.3.1"}, {3, "10.1.3.1"}})},
              {"IPv6 at one index is no reason to leave IPv4", 3, only(1U),
               tables(Table{{3, "10.0.0.1"}, {9, "fd00::1"}}, Table{{5, "10.0.1.1"}, {9, "fd00::2"}})},
              {"link-local at one index is no reason to leave global", 3, only(1U),
               tables(Table{{1, "fe80::1"}, {3, "fd00::1"}}, Table{{1, "fe80::2"}, {5, "fd00::2"}}), GidRank::kIpv6},
              {"IPv6 among itself", 5, only(),
               tables(Table{{3, "fd00::1"}, {5, "fd01::1"}}, Table{{4, "10.0.0.1"}, {5, "fd00::2"}}), GidRank::kIpv6},
              {"link-local among itself", 3, only(),
               tables(Table{{1, "fe80::1"}, {3, "fe80::2"}}, Table{{3, "fe80::3"}}), GidRank::kLinkLocal},
              {"deprecated at one index, good at another", 5, only(),
               tables(Table{{1, "fd09::1", true}, {3, "fd00::1"}, {5, "fd01::1"}},
                      Table{{1, "fd09::2", true}, {4, "fd00::2"}, {5, "fd01::2"}}),
               GidRank::kIpv6},
              {"one deprecated address against two", 2, only(),
               tables(Table{{1, "fd09::1", true}, {2, "fd08::1", true}, {3, "fd00::1"}},
                      Table{{1, "fd09::2", true}, {2, "fd00::2"}}),
               GidRank::kIpv6},
              {"deprecated serves one port more", 1, only(),
               tables(Table{{1, "fd09::1", true}, {3, "fd00::1"}}, Table{{1, "fd09::2", true}, {4, "fd00::2"}}),
               GidRank::kIpv6},
              {"an address that is there twice counts where it is first, as far as a scan surely reads", 3, only(1U),
               tables(Table{{3, "10.0.0.1"}, {7, "10.0.0.1"}}, Table{{7, "10.0.1.1"}})}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto shared = init::share_index(Ports(of_rank(row.tables, row.rank)).wanted(), {});
    EXPECT_EQ(shared.index, row.index);
    EXPECT_EQ(shared.wrong, row.others);
  }
  EXPECT_TRUE(init::share_index({}, {}).wrong.empty());
}

PortTable own_at(unsigned index, const char* own) {
  return {{v2(0, "fe80::1"), v2(index, own)}, index};
}

// The host's address has a lower index than the pod's.
PortTable behind(const char* foreign, unsigned index, const char* own) {
  return {{v2(0, "fe80::1"), v2(1, foreign), v2(index, own)}, index};
}

TEST(PlanIndex, UsesOneIndexOrNcclsChoiceOrARange) {
  const auto ports = [](auto... tables) { return std::vector<PortTable>{tables...}; };
  const Indices none;
  const auto port = [](std::size_t number) { return Indices{number}; };
  const GidRules any;
  GidRules ipv6;
  ipv6.family = fabric::Family::kIpv6;
  GidRules old;
  old.version = {2, 20, 5};
  const std::map<std::size_t, unsigned> moved = {{0, 5}};
  const PortTable own_at_zero = {{v2(0, "10.1.0.1")}, 0};
  const auto two_behind = ports(behind("192.168.0.1", 3, "10.0.0.1"), behind("192.168.0.2", 4, "10.0.1.1"));
  const auto second_own = ports(PortTable{{v2(0, "fe80::1"), v2(1, "10.1.0.1"), v2(5, "10.2.0.1")}, 1, {5}},
                                behind("10.1.0.9", 3, "10.2.0.2"));
  const PortTable uncertain = {
      {v2(0, "fe80::1"), test_support::unreadable(1, "192.168.0.1", EINVAL), v2(3, "10.0.0.1")}, 3};
  const auto link_local = [](const char* own) { return PortTable{{v1(0, own), v2(1, own)}, 1}; };
  // No index serves all four.
  const auto four = of_rank({{{3, "10.0.0.1"}, {9, "10.8.0.1"}},
                             {{4, "10.0.1.1"}, {9, "10.8.1.1"}},
                             {{5, "10.0.2.1"}, {9, "10.8.2.1"}},
                             {{6, "10.0.3.1"}}},
                            GidRank::kIpv4);
  const struct {
    const char* name;
    std::optional<unsigned> index;
    const char* range;  // "": none
    Indices wrong;
    std::vector<PortTable> ports;
    GidRules rules = {};
    bool may_set_range = true;
    std::map<std::size_t, unsigned> moved = {};
  } cases[] = {
      {"agreement, whatever NCCL would choose", 5, "", none,
       ports(behind("192.168.0.1", 5, "10.0.0.1"), own_at(5, "10.1.0.1"))},
      {"no GID is wanted", std::nullopt, "", none, ports()},
      {"different indices where NCCL is right", std::nullopt, "", none,
       ports(own_at(3, "10.0.0.1"), own_at(4, "10.1.0.1"))},
      {"a range against foreign addresses", std::nullopt, "10.0.0.0/23", none, two_behind},
      {"a kept range is not replaced", 3, "", port(1), two_behind, any, false},
      {"the foreign addresses lie in the rails' own networks: what most need", 4, "", port(0),
       ports(behind("10.0.0.9", 3, "10.0.0.1"), behind("10.0.1.9", 4, "10.0.1.1"), behind("10.0.2.9", 4, "10.0.2.1"))},
      // A range of all wanted addresses would contain the foreign one. NCCL stays at index 0 if no GID is in the range.
      {"an own GID at index zero needs no range", std::nullopt, "10.2.0.1/32", none,
       ports(own_at_zero, behind("10.1.5.5", 3, "10.2.0.1"))},
      {"a range of some addresses serves all", std::nullopt, "10.2.0.0/30", none,
       ports(own_at_zero, behind("10.1.9.9", 3, "10.2.0.1"), behind("10.3.0.9", 4, "10.2.0.2"))},
      // A port may be used at any of its own addresses, as with one index for all ports.
      {"a second own address is used if it helps", std::nullopt, "10.2.0.0/30", none, second_own, any, true, moved},
      {"a second own address is not used with a kept range", 1, "", port(1), second_own, any, false},
      {"a tie takes the lower index", 3, "", port(0),
       ports(behind("10.0.0.3", 7, "10.0.0.1"), behind("10.0.0.3", 3, "10.0.0.2"))},
      {"NCCL is right by itself at three indices, and cannot be at one", std::nullopt, "", port(3),
       ports(own_at(3, "10.0.0.1"), own_at(4, "10.0.1.1"), own_at(5, "10.0.2.1"), behind("10.0.3.9", 6, "10.0.3.1"))},
      {"a range helps some", std::nullopt, "10.0.0.0/22", port(3),
       ports(behind("192.168.0.1", 3, "10.0.0.1"), behind("192.168.0.2", 4, "10.0.1.1"),
             behind("192.168.0.3", 5, "10.0.2.1"), behind("10.0.3.9", 6, "10.0.3.1"))},
      {"old NCCL does not choose at all", 4, "", port(0),
       ports(own_at(3, "10.0.0.1"), own_at(4, "10.1.0.1"), own_at(4, "10.2.0.1")), old},
      {"IPv6", std::nullopt, "", none, ports(own_at(3, "fd00:0:0:1::1"), own_at(4, "fd00:0:0:2::1")), ipv6},
      {"link-local needs an index", 1, "", port(2),
       ports(link_local("fe80::1"), link_local("fe80::2"),
             PortTable{{v1(0, "fe80::3"), v1(1, "fe80::4"), v2(2, "fe80::3")}, 2}),
       ipv6},
      {"an uncertain choice is a wrong one, which a range keeps out", std::nullopt, "10.0.0.0/15", none,
       ports(uncertain, own_at(4, "10.1.0.1"))},
      {"a range keeps the other container's out, and serves more than an index", std::nullopt, "10.0.0.0/22", none,
       four},
      {"without it an index serves most", 9, "", port(3), four, any, false}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const auto plan = init::plan_index(Ports(one.ports).wanted(), one.rules, one.may_set_range);
    EXPECT_EQ(plan.index, one.index);
    EXPECT_EQ(plan.range ? to_string(*plan.range) : "", one.range);
    EXPECT_EQ(plan.wrong, one.wrong);
    EXPECT_EQ(plan.moved, one.moved);
  }
  EXPECT_EQ(init::wrong_ports(Ports({uncertain, own_at(4, "10.1.0.1")}).wanted(), {}), Indices{0});
}

TEST(PlanIndex, TakesADeprecatedAddressOnlyIfNoOtherPlanServesAllPorts) {
  GidRules ipv6;
  ipv6.family = fabric::Family::kIpv6;
  const Ports ports(
      of_rank({{{1, "fd00:9::1", true}, {3, "fd00:0:0:1::1"}}, {{1, "fd00:9::2", true}, {4, "fd00:0:0:1::2"}}},
              GidRank::kIpv6));
  const auto with_range = init::plan_index(ports.wanted(), ipv6, true);
  EXPECT_FALSE(with_range.index);
  EXPECT_EQ(with_range.range ? to_string(*with_range.range) : "", "fd00:0:0:1::/126");
  EXPECT_TRUE(with_range.is_right());
  const auto without_range = init::plan_index(ports.wanted(), ipv6, false);
  EXPECT_EQ(without_range.index, 1U) << "NCCL's own choice is the same deprecated addresses";
  EXPECT_TRUE(without_range.wrong.empty());
  EXPECT_EQ(without_range.deprecated, 2U);
}

TEST(PlanIndex, PrefersACommonIndexEvenIfNcclWouldChooseRight) {
  const Ports ports(of_rank({{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, {{5, "10.1.1.1"}}}, GidRank::kIpv4));
  for (const bool may_set_range : {true, false}) {
    const auto plan = init::plan_index(ports.wanted(), {}, may_set_range);
    EXPECT_EQ(plan.index, 5U);
    EXPECT_FALSE(plan.range);
    EXPECT_FALSE(plan.needs_tables) << "a common index needs no simulation of NCCL";
    EXPECT_TRUE(plan.wrong.empty());
  }
}

TEST(NeedsWholeTables, IsTrueOnlyIfTheRestCanChangeNcclsChoice) {
  Ports ports({own_at(3, "10.0.0.1")});
  EXPECT_FALSE(init::needs_whole_tables(ports.wanted(), {2, 25, 0})) << "the table is complete";
  ports.port(0).gids_complete = false;
  EXPECT_TRUE(init::needs_whole_tables(ports.wanted(), {2, 25, 0}));
  EXPECT_FALSE(init::needs_whole_tables(ports.wanted(), {2, 26, 0}));
  Ports link_local({{{v1(0, "fe80::1"), v2(1, "fe80::1")}, 1}});
  link_local.port(0).gids_complete = false;
  EXPECT_TRUE(init::needs_whole_tables(link_local.wanted(), init::nccl::kNewest));
}

// Rails with a second netdev each: mlx5_I has 10.1.I.1 of railI at first + 2 * I, and 10.2.I.1 of netI at 13.
Inventory node_with_children(unsigned count, bool foreign) {
  Inventory node = test_support::rails(count);
  for (unsigned i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    const std::string second = "10.2." + number + ".1";
    node.netdevs.push_back(test_support::netdev("net" + number, {second + "/24"}));
    std::vector<GidEntry>& gids = node.hcas[i].ports[0].gids;
    gids.clear();
    if (foreign) gids.push_back(v2(3, "10.1." + number + ".200"));
    gids.push_back(v2(5 + 2 * i, "10.1." + number + ".1"));
    gids.push_back(v2(13, second));
  }
  return node;
}

std::string value_of(const Decision& decision, std::string_view name) {
  for (const auto& [variable, value] : decision.env)
    if (variable == name) return value;
  return "";
}

void expect_gids(const Decision& decision, const std::vector<Own>& gids) {
  ASSERT_EQ(decision.ports.size(), gids.size());
  for (std::size_t i = 0; i < gids.size(); ++i) {
    EXPECT_TRUE(decision.ports[i].used);
    EXPECT_EQ(decision.ports[i].gid_index, gids[i].index);
    EXPECT_EQ(decision.ports[i].gid, test_support::address(gids[i].address));
  }
}

TEST(CommonIndex, IsInEveryPortReport) {
  const Inventory node = node_with_children(3, true);
  const Decision decision = init::decide(node, {}, {});
  expect_gids(decision, {{13, "10.2.0.1"}, {13, "10.2.1.1"}, {13, "10.2.2.1"}});
  EXPECT_EQ(decision.status, init::Status::kOk) << decision.warnings.front().message;
  EXPECT_EQ(value_of(decision, "NCCL_IB_GID_INDEX"), "13");
  EXPECT_EQ(value_of(decision, "UCX_IB_GID_INDEX"), "13");
  EXPECT_EQ(value_of(decision, "UCX_NET_DEVICES"), "mlx5_0:1,mlx5_1:1,mlx5_2:1,net0,net1,net2");
  EXPECT_NE(decision.summary.find("GID index 13 (IPv4)"), std::string::npos) << decision.summary;
  const std::string text = init::doctor_text(decision, init::check_up(node, {}, decision));
  EXPECT_NE(text.find("GID 13 is RoCE v2 IPv4 10.2.0.1 of net0"), std::string::npos) << text;
  EXPECT_EQ(text.find("10.1.0.1"), std::string::npos) << text;
  EXPECT_NE(init::topo_text(node, decision).find("GID 13"), std::string::npos);
}

TEST(CommonIndex, ServesOldNcclAndOtherLibraries) {
  init::Policy old;
  old.nccl_version = {2, 20, 5};
  const Decision for_old = init::decide(node_with_children(3, false), {}, old);
  EXPECT_TRUE(for_old.warnings.empty()) << for_old.warnings.front().message;
  EXPECT_EQ(value_of(for_old, "NCCL_IB_GID_INDEX"), "13");
  init::Policy policy;
  policy.exports = {"ucx"};
  Inventory node = node_with_children(3, true);
  EXPECT_EQ(value_of(init::decide(node, {}, policy), "UCX_IB_GID_INDEX"), "13");
  // Only NCCL needs an index that serves some ports. UCX chooses per port.
  node.hcas[2].ports[0].gids.pop_back();
  const Decision decision = init::decide(node, {}, policy);
  expect_gids(decision, {{5, "10.1.0.1"}, {7, "10.1.1.1"}, {9, "10.1.2.1"}});
  EXPECT_EQ(value_of(decision, "UCX_IB_GID_INDEX"), "");
}

TEST(CommonIndex, RespectsOptionsAndKeptValues) {
  const Inventory node = node_with_children(2, false);
  init::Policy narrow;
  narrow.gids.cidrs = {*fabric::parse_cidr("10.1.0.0/16")};
  const Decision narrowed = init::decide(node, {}, narrow);
  expect_gids(narrowed, {{5, "10.1.0.1"}, {7, "10.1.1.1"}});
  EXPECT_EQ(value_of(narrowed, "NCCL_IB_GID_INDEX"), "");
  const auto set = [](const char* name, const char* value) { return init::Settings{{name, {value, "environment"}}}; };
  // NCCL chooses the first GID of each port.
  expect_gids(init::decide(node, set("NCCL_IB_GID_INDEX", "-1"), {}), {{5, "10.1.0.1"}, {7, "10.1.1.1"}});
  const Decision kept = init::decide(node, set("NCCL_IB_GID_INDEX", "13"), {});
  expect_gids(kept, {{13, "10.2.0.1"}, {13, "10.2.1.1"}});
  EXPECT_TRUE(kept.warnings.empty());
  // NCCL ignores the range if an index is set, so the index must be in the range.
  const Decision first = init::decide(node, set("NCCL_IB_ADDR_RANGE", "10.1.0.0/16"), {});
  expect_gids(first, {{5, "10.1.0.1"}, {7, "10.1.1.1"}});
  EXPECT_EQ(value_of(first, "NCCL_IB_GID_INDEX"), "");
  const Decision second = init::decide(node, set("NCCL_IB_ADDR_RANGE", "10.2.0.0/16"), {});
  expect_gids(second, {{13, "10.2.0.1"}, {13, "10.2.1.1"}});
  EXPECT_TRUE(second.warnings.empty());
  init::Policy policy;
  policy.override_wrong = true;
  const Decision replaced = init::decide(node, set("NCCL_IB_GID_INDEX", "3"), policy);
  expect_gids(replaced, {{13, "10.2.0.1"}, {13, "10.2.1.1"}});
  EXPECT_EQ(value_of(replaced, "NCCL_IB_GID_INDEX"), "13");
}

}  // namespace
