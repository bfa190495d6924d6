// Several addresses of the container's own per port: the index at which most ports have one of them.
#include <gtest/gtest.h>

#include <deque>

#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "init/gid_index.hpp"
#include "init/topo.hpp"
#include "support/inventories.hpp"

namespace {

using fabric::GidEntry;
using fabric::Inventory;
using init::Decision;
using init::GidRank;
using init::WantedGid;
using test_support::v2;

struct Own {
  unsigned index;
  const char* address;
};
using Table = std::vector<Own>;  // of one port, ascending index
using Others = std::vector<std::size_t>;

GidRank rank_of(const fabric::Address& gid) {
  return gid.is_ipv4() ? GidRank::kIpv4 : gid.is_link_local() ? GidRank::kLinkLocal : GidRank::kIpv6;
}

// Ports of which each wants the lowest GID of the rank.
class Ports {
 public:
  Ports(const std::vector<Table>& tables, GidRank rank) {
    for (const Table& table : tables) {
      std::vector<GidEntry> entries = {v2(1, "10.9.0.9")};  // another container's, where NCCL would end by itself
      init::Candidate candidate;
      for (const Own& own : table) {
        const fabric::Address gid = test_support::address(own.address);
        entries.push_back(v2(own.index, own.address));
        candidate.gids.push_back({own.index, gid, rank_of(gid), "net"});
      }
      hcas_.push_back(test_support::hca("mlx5_0", 0, {test_support::ethernet_port(std::move(entries))}));
      candidate.hca = &hcas_.back();
      candidate.port = &hcas_.back().ports[0];
      candidates_.push_back(candidate);
      wanted_.push_back({wanted_.size(), &candidates_.back(), *candidates_.back().best(rank)});
    }
  }
  const std::vector<WantedGid>& wanted() const { return wanted_; }

 private:
  std::deque<fabric::Hca> hcas_;
  std::deque<init::Candidate> candidates_;
  std::vector<WantedGid> wanted_;
};

TEST(ShareIndex, ServesMostPorts) {
  struct Row {
    const char* name;
    std::vector<Table> tables;
    unsigned index;
    Others others;
    GidRank rank = GidRank::kIpv4;
  };
  const std::vector<Row> rows = {
      {"one address each, one index", {{{3, "10.0.0.1"}}, {{3, "10.0.1.1"}}}, 3, {}},
      {"the lowest of two that both have",
       {{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, {{3, "10.1.1.1"}, {5, "10.0.1.1"}}},
       3,
       {}},
      {"the second of one is the first of the other",
       {{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, {{5, "10.1.1.1"}, {7, "10.0.1.1"}}},
       5,
       {}},
      {"only the second ones agree",
       {{{3, "10.0.0.1"}, {13, "10.1.0.1"}},
        {{5, "10.0.1.1"}, {13, "10.1.1.1"}},
        {{7, "10.0.2.1"}, {13, "10.1.2.1"}},
        {{9, "10.0.3.1"}, {13, "10.1.3.1"}}},
       13,
       {}},
      {"two first ones agree, but all the second ones",
       {{{3, "10.0.0.1"}, {9, "10.1.0.1"}}, {{3, "10.0.1.1"}, {9, "10.1.1.1"}}, {{5, "10.0.2.1"}, {9, "10.1.2.1"}}},
       9,
       {}},
      {"one port has no second one",
       {{{3, "10.0.0.1"}, {9, "10.1.0.1"}}, {{5, "10.0.1.1"}, {9, "10.1.1.1"}}, {{7, "10.0.2.1"}}},
       9,
       {2}},
      {"nothing in common: the lowest", {{{7, "10.0.0.1"}, {9, "10.1.0.1"}}, {{3, "10.0.1.1"}}}, 3, {0}},
      {"a tie goes to the one that more ports want",
       {{{5, "10.0.0.1"}}, {{5, "10.0.1.1"}}, {{3, "10.0.2.1"}}, {{2, "10.0.3.1"}, {3, "10.1.3.1"}}},
       5,
       {2, 3}},
      {"IPv6 at one index is no reason to leave IPv4",
       {{{3, "10.0.0.1"}, {9, "fd00::1"}}, {{5, "10.0.1.1"}, {9, "fd00::2"}}},
       3,
       {1}},
      {"link-local at one index is no reason to leave global",
       {{{1, "fe80::1"}, {3, "fd00::1"}}, {{1, "fe80::2"}, {5, "fd00::2"}}},
       3,
       {1},
       GidRank::kIpv6},
      {"IPv6 among itself",
       {{{3, "fd00::1"}, {5, "fd01::1"}}, {{4, "10.0.0.1"}, {5, "fd00::2"}}},
       5,
       {},
       GidRank::kIpv6},
      {"link-local among itself", {{{1, "fe80::1"}, {3, "fe80::2"}}, {{3, "fe80::3"}}}, 3, {}, GidRank::kLinkLocal},
      {"an address that is there twice counts where it is first, as far as a scan surely reads",
       {{{3, "10.0.0.1"}, {7, "10.0.0.1"}}, {{7, "10.0.1.1"}}},
       3,
       {1}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto shared = init::share_index(Ports(row.tables, row.rank).wanted(), {});
    EXPECT_EQ(shared.index, row.index);
    EXPECT_EQ(shared.others, row.others);
  }
  EXPECT_TRUE(init::share_index({}, {}).others.empty());
}

TEST(PlanIndex, AnIndexOfAllIsTakenEvenWhereNcclWouldBeRight) {
  const Ports ports({{{3, "10.0.0.1"}, {5, "10.1.0.1"}}, {{5, "10.1.1.1"}}}, GidRank::kIpv4);
  for (const bool may_set_range : {true, false}) {
    const auto plan = init::plan_index(ports.wanted(), {}, may_set_range);
    EXPECT_EQ(plan.index, 5U);
    EXPECT_FALSE(plan.range);
    EXPECT_FALSE(plan.needs_tables) << "NCCL need not be simulated";
    EXPECT_TRUE(plan.wrong.empty());
  }
}

TEST(PlanIndex, NcclsOwnChoiceStaysWhereItServesMore) {
  // The range 10.0.0.0/22 keeps the other container's addresses out; no index serves all four.
  const Ports ports({{{3, "10.0.0.1"}, {9, "10.8.0.1"}},
                     {{4, "10.0.1.1"}, {9, "10.8.1.1"}},
                     {{5, "10.0.2.1"}, {9, "10.8.2.1"}},
                     {{6, "10.0.3.1"}}},
                    GidRank::kIpv4);
  const auto ranged = init::plan_index(ports.wanted(), {}, true);
  EXPECT_FALSE(ranged.index);
  ASSERT_TRUE(ranged.range);
  EXPECT_TRUE(ranged.wrong.empty());
  const auto without = init::plan_index(ports.wanted(), {}, false);
  EXPECT_EQ(without.index, 9U);
  EXPECT_EQ(without.wrong, Others{3});
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
  for (const auto& [variable, value] : decision.env) {
    if (variable == name) return value;
  }
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

TEST(CommonIndex, EveryReportNamesTheGidAtIt) {
  const Inventory node = node_with_children(3, true);
  const Decision decision = init::decide(node, {}, {});
  expect_gids(decision, {{13, "10.2.0.1"}, {13, "10.2.1.1"}, {13, "10.2.2.1"}});
  EXPECT_EQ(decision.status, init::Status::kOk) << decision.warnings.front();
  EXPECT_EQ(value_of(decision, "NCCL_IB_GID_INDEX"), "13");
  EXPECT_EQ(value_of(decision, "UCX_IB_GID_INDEX"), "13");
  EXPECT_EQ(value_of(decision, "UCX_NET_DEVICES"), "mlx5_0:1,mlx5_1:1,mlx5_2:1,net0,net1,net2");
  EXPECT_NE(decision.summary.find("GID index 13 (IPv4)"), std::string::npos) << decision.summary;
  const std::string text = init::doctor_text(decision, init::check_up(node, {}, decision));
  EXPECT_NE(text.find("GID 13 is RoCE v2 IPv4 10.2.0.1 of net0"), std::string::npos) << text;
  EXPECT_EQ(text.find("10.1.0.1"), std::string::npos) << text;
  EXPECT_NE(init::topo_text(node, decision).find("GID 13"), std::string::npos);
}

TEST(CommonIndex, WorksForOldNcclToo) {
  init::Policy policy;
  policy.nccl_version = {2, 20, 5};
  const Decision decision = init::decide(node_with_children(3, false), {}, policy);
  EXPECT_TRUE(decision.warnings.empty()) << decision.warnings.front();
  EXPECT_EQ(value_of(decision, "NCCL_IB_GID_INDEX"), "13");
}

TEST(CommonIndex, OtherLibrariesGetItWithoutNccl) {
  init::Policy policy;
  policy.exports = {"ucx"};
  Inventory node = node_with_children(3, true);
  EXPECT_EQ(value_of(init::decide(node, {}, policy), "UCX_IB_GID_INDEX"), "13");
  // One that serves only some is NCCL's need. UCX chooses per port.
  node.hcas[2].ports[0].gids.pop_back();
  const Decision decision = init::decide(node, {}, policy);
  expect_gids(decision, {{5, "10.1.0.1"}, {7, "10.1.1.1"}, {9, "10.1.2.1"}});
  EXPECT_EQ(value_of(decision, "UCX_IB_GID_INDEX"), "");
}

TEST(CommonIndex, OptionsNarrowIt) {
  init::Policy policy;
  policy.gids.cidrs = {*fabric::parse_cidr("10.1.0.0/16")};
  const Decision decision = init::decide(node_with_children(2, false), {}, policy);
  expect_gids(decision, {{5, "10.1.0.1"}, {7, "10.1.1.1"}});
  EXPECT_EQ(value_of(decision, "NCCL_IB_GID_INDEX"), "");
}

TEST(CommonIndex, KeptValues) {
  const Inventory node = node_with_children(2, false);
  const auto set = [](const char* name, const char* value) { return init::Settings{{name, {value, "environment"}}}; };
  // NCCL chooses, and takes each port's first.
  expect_gids(init::decide(node, set("NCCL_IB_GID_INDEX", "-1"), {}), {{5, "10.1.0.1"}, {7, "10.1.1.1"}});
  const Decision kept = init::decide(node, set("NCCL_IB_GID_INDEX", "13"), {});
  expect_gids(kept, {{13, "10.2.0.1"}, {13, "10.2.1.1"}});
  EXPECT_TRUE(kept.warnings.empty());
  // NCCL does not ask for the range once an index is set, so the index must be in it.
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
