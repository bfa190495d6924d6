#include "init/gid_index.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "support/inventories.hpp"

namespace {

using fabric::GidEntry;
using init::GidRank;
using init::nccl::GidRules;
using test_support::v1;
using test_support::v2;

// Ports with a table each, and the index that is wanted on each.
class WantedPorts {
 public:
  // also: indices of further GIDs of the port's own.
  WantedPorts& add(std::vector<GidEntry> gids, unsigned wanted, const std::vector<unsigned>& also = {}) {
    const auto entry = std::find_if(gids.begin(), gids.end(), [&](const GidEntry& one) { return one.index == wanted; });
    const fabric::Address gid = entry->gid;
    const GidRank rank = gid.is_ipv4() ? GidRank::kIpv4 : gid.is_link_local() ? GidRank::kLinkLocal : GidRank::kIpv6;
    init::Candidate candidate;
    for (const GidEntry& one : gids) {
      const bool is_own = one.index == wanted || std::find(also.begin(), also.end(), one.index) != also.end();
      if (is_own) candidate.gids.push_back({one.index, one.gid, rank, "net"});
    }
    hcas_.push_back(test_support::hca("mlx5_0", 0, {test_support::ethernet_port(std::move(gids))}));
    candidate.hca = &hcas_.back();
    candidate.port = &hcas_.back().ports[0];
    candidates_.push_back(candidate);
    wanted_.push_back({wanted_.size(), &candidates_.back(), {wanted, gid, rank, "net"}});
    return *this;
  }
  fabric::Port& port(std::size_t index) { return hcas_[index].ports[0]; }
  const std::vector<init::WantedGid>& wanted() const { return wanted_; }

 private:
  std::deque<fabric::Hca> hcas_;
  std::deque<init::Candidate> candidates_;
  std::vector<init::WantedGid> wanted_;
};

using Wrong = std::vector<std::size_t>;

GidRules ipv6_rules() {
  GidRules rules;
  rules.family = fabric::Family::kIpv6;
  return rules;
}

std::vector<GidEntry> own_at(unsigned index, const char* own) {
  return {v2(0, "fe80::1"), v2(index, own)};
}

// The host's address sits in front of the pod's.
std::vector<GidEntry> behind(const char* foreign, unsigned index, const char* own) {
  return {v2(0, "fe80::1"), v2(1, foreign), v2(index, own)};
}

TEST(PlanIndex, AgreementIsExportedWhateverNcclWouldChoose) {
  const auto plan = init::plan_index(
      WantedPorts().add(behind("192.168.0.1", 5, "10.0.0.1"), 5).add(own_at(5, "10.1.0.1"), 5).wanted(), {}, true);
  EXPECT_EQ(plan.index, 5U);
  EXPECT_FALSE(plan.range);
  EXPECT_TRUE(plan.wrong.empty());
}

TEST(PlanIndex, NothingWantedIsNoPlan) {
  const auto plan = init::plan_index({}, {}, true);
  EXPECT_FALSE(plan.index);
  EXPECT_TRUE(plan.wrong.empty());
}

TEST(PlanIndex, DifferentIndicesAreLeftToNcclWhereItIsRight) {
  const auto plan =
      init::plan_index(WantedPorts().add(own_at(3, "10.0.0.1"), 3).add(own_at(4, "10.1.0.1"), 4).wanted(), {}, true);
  EXPECT_FALSE(plan.index);
  EXPECT_FALSE(plan.range);
  EXPECT_TRUE(plan.wrong.empty());
}

TEST(PlanIndex, ARangeHelpsAgainstForeignAddresses) {
  const WantedPorts ports = std::move(
      WantedPorts().add(behind("192.168.0.1", 3, "10.0.0.1"), 3).add(behind("192.168.0.2", 4, "10.0.1.1"), 4));
  const auto plan = init::plan_index(ports.wanted(), {}, true);
  EXPECT_FALSE(plan.index);
  ASSERT_TRUE(plan.range);
  EXPECT_EQ(to_string(*plan.range), "10.0.0.0/23");
  EXPECT_TRUE(plan.wrong.empty());

  const auto kept = init::plan_index(ports.wanted(), {}, false);
  EXPECT_FALSE(kept.range) << "a kept range is not ours to set";
  EXPECT_EQ(kept.index, 3U);
  EXPECT_EQ(kept.wrong, Wrong{1});
}

TEST(PlanIndex, NoRangeTellsThemApart) {
  // The foreign addresses lie in the rails' own networks.
  const auto plan = init::plan_index(WantedPorts()
                                         .add(behind("10.0.0.9", 3, "10.0.0.1"), 3)
                                         .add(behind("10.0.1.9", 4, "10.0.1.1"), 4)
                                         .add(behind("10.0.2.9", 4, "10.0.2.1"), 4)
                                         .wanted(),
                                     {}, true);
  EXPECT_EQ(plan.index, 4U) << "what most of them need";
  EXPECT_FALSE(plan.range);
  EXPECT_EQ(plan.wrong, Wrong{0});
}

// The range of all would hold the foreign address, too. NCCL stays at index 0 where nothing is in the range.
TEST(PlanIndex, AnOwnGidAtIndexZeroNeedsNoRange) {
  const auto plan = init::plan_index(
      WantedPorts().add({v2(0, "10.1.0.1")}, 0).add(behind("10.1.5.5", 3, "10.2.0.1"), 3).wanted(), {}, true);
  EXPECT_FALSE(plan.index);
  EXPECT_TRUE(plan.wrong.empty());
  EXPECT_TRUE(plan.moved.empty());
  EXPECT_EQ(plan.range, fabric::parse_cidr("10.2.0.1/32"));
}

TEST(PlanIndex, ARangeOfSomeAddressesMayServeAll) {
  WantedPorts ports;
  ports.add({v2(0, "10.1.0.1")}, 0).add(behind("10.1.9.9", 3, "10.2.0.1"), 3).add(behind("10.3.0.9", 4, "10.2.0.2"), 4);
  const auto plan = init::plan_index(ports.wanted(), {}, true);
  EXPECT_TRUE(plan.wrong.empty());
  EXPECT_EQ(plan.range, fabric::parse_cidr("10.2.0.0/30"));
}

// By which of its own addresses a port is used does not matter, as with one index for all.
TEST(PlanIndex, ASecondOwnAddressWillDoWhereItHelps) {
  WantedPorts ports;
  ports.add({v2(0, "fe80::1"), v2(1, "10.1.0.1"), v2(5, "10.2.0.1")}, 1, {5})
      .add({v2(0, "fe80::1"), v2(1, "10.1.0.9"), v2(3, "10.2.0.2")}, 3);
  const auto plan = init::plan_index(ports.wanted(), {}, true);
  EXPECT_FALSE(plan.index);
  EXPECT_TRUE(plan.wrong.empty());
  EXPECT_EQ(plan.range, fabric::parse_cidr("10.2.0.0/30"));
  EXPECT_EQ(plan.moved, (std::map<std::size_t, unsigned>{{0, 5}}));
  EXPECT_EQ(init::plan_index(ports.wanted(), {}, false).wrong.size(), 1U) << "a range that is kept";
}

TEST(PlanIndex, ATieTakesTheLowerIndex) {
  const auto plan = init::plan_index(
      WantedPorts().add(behind("10.0.0.3", 7, "10.0.0.1"), 7).add(behind("10.0.0.3", 3, "10.0.0.2"), 3).wanted(), {},
      true);
  EXPECT_EQ(plan.index, 3U);
  EXPECT_EQ(plan.wrong, Wrong{0});
}

TEST(PlanIndex, NcclsOwnChoiceServesMoreThanAnyIndex) {
  // Four ports are right by themselves at four indices; one cannot be.
  const auto plan = init::plan_index(WantedPorts()
                                         .add(own_at(3, "10.0.0.1"), 3)
                                         .add(own_at(4, "10.0.1.1"), 4)
                                         .add(own_at(5, "10.0.2.1"), 5)
                                         .add(behind("10.0.3.9", 6, "10.0.3.1"), 6)
                                         .wanted(),
                                     {}, true);
  EXPECT_FALSE(plan.index);
  EXPECT_EQ(plan.wrong, Wrong{3});
}

TEST(PlanIndex, ARangeMayHelpSome) {
  const auto plan = init::plan_index(WantedPorts()
                                         .add(behind("192.168.0.1", 3, "10.0.0.1"), 3)
                                         .add(behind("192.168.0.2", 4, "10.0.1.1"), 4)
                                         .add(behind("192.168.0.3", 5, "10.0.2.1"), 5)
                                         .add(behind("10.0.3.9", 6, "10.0.3.1"), 6)
                                         .wanted(),
                                     {}, true);
  EXPECT_FALSE(plan.index);
  ASSERT_TRUE(plan.range);
  EXPECT_EQ(to_string(*plan.range), "10.0.0.0/22");
  EXPECT_EQ(plan.wrong, Wrong{3});
}

TEST(PlanIndex, OldNcclDoesNotChooseAtAll) {
  GidRules rules;
  rules.version = {2, 20, 5};
  const auto plan = init::plan_index(
      WantedPorts().add(own_at(3, "10.0.0.1"), 3).add(own_at(4, "10.1.0.1"), 4).add(own_at(4, "10.2.0.1"), 4).wanted(),
      rules, true);
  EXPECT_EQ(plan.index, 4U);
  EXPECT_EQ(plan.wrong, Wrong{0});
}

TEST(PlanIndex, Ipv6) {
  const auto plan = init::plan_index(
      WantedPorts().add(own_at(3, "fd00:0:0:1::1"), 3).add(own_at(4, "fd00:0:0:2::1"), 4).wanted(), ipv6_rules(), true);
  EXPECT_FALSE(plan.index);
  EXPECT_TRUE(plan.wrong.empty());
}

TEST(PlanIndex, LinkLocalNeedsAnIndex) {
  const auto plan = init::plan_index(WantedPorts()
                                         .add({v1(0, "fe80::1"), v2(1, "fe80::1")}, 1)
                                         .add({v1(0, "fe80::2"), v2(1, "fe80::2")}, 1)
                                         .add({v1(0, "fe80::3"), v1(1, "fe80::4"), v2(2, "fe80::3")}, 2)
                                         .wanted(),
                                     ipv6_rules(), true);
  EXPECT_EQ(plan.index, 1U);
  EXPECT_EQ(plan.wrong, Wrong{2});
}

TEST(PlanIndex, AnUncertainChoiceIsAWrongOne) {
  const std::vector<GidEntry> uncertain = {v2(0, "fe80::1"), test_support::unreadable(1, "192.168.0.1", EINVAL),
                                           v2(3, "10.0.0.1")};
  const WantedPorts ports = std::move(WantedPorts().add(uncertain, 3).add(own_at(4, "10.1.0.1"), 4));
  EXPECT_EQ(init::wrong_ports(ports.wanted(), {}), Wrong{0});
  const auto plan = init::plan_index(ports.wanted(), {}, true);
  ASSERT_TRUE(plan.range) << "10.0.0.0/15 keeps the unreadable one out";
  EXPECT_TRUE(plan.wrong.empty());
}

TEST(NeedsWholeTables, OnlyWhereTheRestCouldMatter) {
  WantedPorts ports;
  ports.add(own_at(3, "10.0.0.1"), 3);
  EXPECT_FALSE(init::needs_whole_tables(ports.wanted(), {2, 25, 0})) << "the table is whole";
  ports.port(0).gids_complete = false;
  EXPECT_TRUE(init::needs_whole_tables(ports.wanted(), {2, 25, 0}));
  EXPECT_FALSE(init::needs_whole_tables(ports.wanted(), {2, 26, 0}));
  WantedPorts link_local;
  link_local.add({v1(0, "fe80::1"), v2(1, "fe80::1")}, 1);
  link_local.port(0).gids_complete = false;
  EXPECT_TRUE(init::needs_whole_tables(link_local.wanted(), init::nccl::kNewest));
}

}  // namespace
