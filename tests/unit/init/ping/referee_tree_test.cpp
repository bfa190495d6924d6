// Ranks of a model that report through relays.
#include <gtest/gtest.h>

#include <algorithm>

#include "fabric_model.hpp"
#include "init/ping/causes.hpp"

namespace {

using namespace ping_test;

// Groups of four ranks: ranks 4, 8 and so on are relays.
Rules tree_of(unsigned size) {
  Rules rules;
  rules.size = size;
  rules.fan_out = 4;
  rules.tree_from = 4;
  return rules;
}

std::size_t count_good(const Outcome& outcome) {
  return static_cast<std::size_t>(std::ranges::count(outcome.cells, Layer::kGood));
}

TEST(Tree, RanksOfAllGroupsButTheFirstReportThroughRelays) {
  for (const unsigned size : {4U, 5U, 8U, 11U, 16U}) {
    FabricModel model(tree_of(size), 2, {});
    EXPECT_LT(model.run(), 2) << size;
    EXPECT_EQ(model.relayed(), size - 4) << size;
    EXPECT_EQ(count_good(model.outcome()), size * (size - 1)) << size;
    EXPECT_TRUE(find_causes(model.outcome()).empty()) << size;
  }
}

TEST(Tree, SmallJobHasNone) {
  Rules rules = tree_of(16);
  rules.tree_from = 17;
  FabricModel model(rules, 1, {});
  model.run();
  EXPECT_EQ(model.relayed(), 0U);
}

TEST(Tree, RanksThatDoNotReachTheirRelayReportDirectly) {
  Faults faults;
  faults.no_relay = {4};
  faults.not_reachable = {8};
  FabricModel model(tree_of(16), 1, faults);
  EXPECT_LT(model.run(), 6);
  EXPECT_EQ(model.relayed(), 5U) << "rank 8 itself, and ranks 12 to 15";
  EXPECT_EQ(count_good(model.outcome()), 120U);
}

TEST(Tree, RankThatLeavesItsRelayTooLateReportsDirectly) {
  Faults faults;
  faults.late_to_answer = {5, 7};
  faults.not_reachable = {8};  // so that the meeting is not over
  FabricModel model(tree_of(12), 1, faults);
  model.run();
  EXPECT_EQ(model.relayed(), 3U) << "ranks 4, 6 and 8";
  EXPECT_EQ(count_good(model.outcome()), 66U);
}

TEST(Tree, RelayThatEndsBeforeTheTestsComesAgainWithItsRanks) {
  Faults faults;
  faults.ends_as_relay = {4};
  FabricModel model(tree_of(12), 1, faults);
  EXPECT_LT(model.run(), 5);
  EXPECT_EQ(count_good(model.outcome()), 66U);
}

TEST(Tree, RelayThatNeverComesIsNamed) {
  Faults faults;
  faults.absent = {8};
  FabricModel model(tree_of(12), 1, faults);
  EXPECT_DOUBLE_EQ(model.run(), 30);
  EXPECT_EQ(model.outcome().absent, std::vector<unsigned>{8});
}

TEST(Tree, RelayThatStopsBeforeTheTestsIsNamedAndDelaysThemBySeconds) {
  Rules rules = tree_of(12);
  rules.meeting_seconds = 600;
  Faults faults;
  faults.stops_as_relay = {4};
  FabricModel model(rules, 1, faults);
  EXPECT_LT(model.run(), 20);
  EXPECT_EQ(model.outcome().members[4].problem,
            (Failure{Layer::kRank, "rank 4 did not answer for 8 s before the first round"}));
  EXPECT_EQ(count_good(model.outcome()), 11U * 10 / 2) << "the ranks of its group report directly";
  EXPECT_EQ(find_causes(model.outcome()).size(), 1U);
}

TEST(Tree, RelayThatEndsOrStopsIsOneNamedCause) {
  for (const bool ends : {false, true}) {
    Faults faults;
    (ends ? faults.ended_in_round : faults.silent_from_round)[8] = 2;
    FabricModel model(tree_of(16), 2, faults);
    EXPECT_LT(model.run(), ends ? 2 : 20);
    const std::vector<Member>& members = model.outcome().members;
    const std::string what = ends ? "ended" : "did not answer for 8 s";
    EXPECT_EQ(members[8].problem, (Failure{Layer::kRank, "rank 8 " + what + " in round 2 of 15"}));
    EXPECT_FALSE(members[8].lost_with);
    for (const unsigned rank : {9U, 10U, 11U}) {
      EXPECT_EQ(members[rank].lost_with, 8U);
      EXPECT_EQ(members[rank].problem.detail, "it reports through rank 8, which " + what + " in round 2 of 15");
    }
    const std::vector<Cause> causes = find_causes(model.outcome());
    ASSERT_EQ(causes.size(), 1U) << ends;
    EXPECT_EQ(causes.front().rank, 8U);
    EXPECT_NE(causes.front().message.find("; 3 ranks reported through it"), std::string::npos)
        << causes.front().message;
    EXPECT_GE(count_good(model.outcome()), 12U * 11U) << "the other ranks were tested";
  }
}

TEST(Tree, RankBehindRelayThatEndsOrIsSilentIsNamed) {
  for (const bool ends : {false, true}) {
    Faults faults;
    (ends ? faults.ended_in_round : faults.silent_from_round)[10] = 2;
    FabricModel model(tree_of(16), 1, faults);
    EXPECT_LT(model.run(), 20);
    EXPECT_EQ(model.outcome().members[10].problem,
              (Failure{Layer::kRank, ends ? "rank 10 ended in round 2 of 15" : "it does not answer for 9 s"}));
    EXPECT_EQ(find_causes(model.outcome()).size(), 1U) << ends;
  }
}

TEST(Tree, RankBehindRelayThatNeverPreparesIsNamed) {
  Faults faults;
  faults.never_prepared = {9};
  FabricModel model(tree_of(12), 1, faults);
  EXPECT_LT(model.run(), 12);
  EXPECT_EQ(model.outcome().members[9].problem, (Failure{Layer::kRank, "it does not answer for 10 s"}));
}

TEST(Tree, RelayMaySpeakForItsRanksOnly) {
  FabricModel model(tree_of(8), 1, {});
  for (unsigned rank = 0; rank < 8; ++rank)
    model.receive(rank, model.join(rank));
  model.receive(4, RelayAt{"10.0.0.4", 9});
  // The ranks are of another group, or none, or come twice, or their frames are wrong, or the sender is no relay.
  model.receive(4, Bundle{{{1, encode(Attach{1})}}});
  model.receive(4, Bundle{{{9, encode(Attach{9})}}});
  model.receive(4, Bundle{{{5, encode(Attach{6})}, {5, "x"}, {5, encode(model.join(5))}}});
  model.receive(1, Bundle{{{5, encode(Attach{5})}}});
  for (const unsigned rank : {4U, 5U, 5U, 6U, 7U})
    model.receive(4, Bundle{{{rank, encode(Attach{rank})}}});
  EXPECT_EQ(model.outcome().members.size(), 8U);
  model.receive(4, Bundle{{{5, "x"}}});
  EXPECT_EQ(model.outcome().members[5].problem,
            (Failure{Layer::kRank, "it sent a message that rank 0 does not expect"}));
  for (const unsigned rank : {0U, 1U, 2U, 3U, 6U})
    EXPECT_FALSE(model.outcome().members[rank].problem.failed()) << rank;
}

// Every mixture of faults ends within the time that was promised.
TEST(Tree, EndsWithinItsBudget) {
  std::mt19937 engine(1);
  const auto below = [&](unsigned end) { return static_cast<unsigned>(engine() % end); };
  const auto chance = [&](double p) { return std::bernoulli_distribution(p)(engine); };
  for (int turn = 0; turn < 150; ++turn) {
    const unsigned size = 5 + below(24);
    Rules rules = tree_of(size);
    rules.fan_out = 2 + below(5);
    Faults faults;
    for (unsigned rank = 0; rank < size; ++rank) {
      if (chance(0.01)) faults.absent.insert(rank);
      if (chance(0.1)) faults.silent_from_round[rank] = below(size);
      if (chance(0.1)) faults.ended_in_round[rank] = below(size);
      if (chance(0.05)) faults.never_prepared.insert(rank);
      if (chance(0.1)) faults.no_relay.insert(rank);
      if (chance(0.1)) faults.not_reachable.insert(rank);
      if (chance(0.05)) faults.late_to_answer.insert(rank);
      if (chance(0.1)) faults.ends_as_relay.insert(rank);
      if (chance(0.05)) faults.stops_as_relay.insert(rank);
    }
    faults.result = [&](unsigned, unsigned, RailPair, std::uint32_t) {
      return chance(0.2) ? failed(static_cast<Layer>(1 + below(kLayers - 1))) : TestResult{{}, false, 0};
    };
    FabricModel model(rules, 1, faults);
    const double end = model.run();
    EXPECT_TRUE(model.referee().is_finished()) << turn;
    EXPECT_LE(end, rules.meeting_seconds + 10.25 + test_budget(size, 1, rules)) << turn;
  }
}

// --- The sparse schedule.

Rules sparse_rules(unsigned size) {
  Rules rules;
  rules.size = size;
  rules.seed = 7;
  return rules;
}

TEST(SparseTest, MembersMeetFewPeersFrom128On) {
  FabricModel small(sparse_rules(127), 1, {});
  small.run();
  EXPECT_FALSE(small.outcome().is_sparse());
  FabricModel model(sparse_rules(128), 2, {});
  model.run();
  EXPECT_TRUE(model.outcome().is_sparse());
  EXPECT_EQ(model.outcome().cells, std::vector<Layer>(64 * 14 * 2, Layer::kGood));
  EXPECT_TRUE(find_causes(model.outcome()).empty());
  Rules all = sparse_rules(128);
  all.all_pairs = true;
  FabricModel complete(all, 1, {});
  complete.run();
  EXPECT_EQ(count_good(complete.outcome()), 128U * 127 / 2);
}

TEST(SparseTest, RetestAddsPairsAndNamesTheEnd) {
  Faults faults;
  faults.result = [](unsigned rank, unsigned peer, RailPair rails, std::uint32_t) {
    const bool hits = (rank == 77 || peer == 77) && rails.own == 1;
    return hits ? failed(Layer::kGid) : TestResult{{}, false, 0};
  };
  FabricModel model(sparse_rules(128), 2, faults);
  model.run();
  // The pair of the retest may be one of the schedule.
  EXPECT_LE(model.outcome().pairs.size(), 64U * 14 + 1);
  const std::vector<Cause> causes = find_causes(model.outcome());
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes.front().kind, Cause::Kind::kRailOfRank);
  EXPECT_EQ(causes.front().rank, 77U);
  EXPECT_GE(causes.front().failed, 2U);
}

TEST(SparseTest, TestsCrossedRails) {
  Rules rules = sparse_rules(128);
  rules.all_rails = true;
  FabricModel model(rules, 2, {});
  model.run();
  EXPECT_EQ(model.outcome().crossed_tested, 64U * 14 * 2);
}

// Nodes with several ranks can have fewer members than 128, and then more rounds than the ranks would have.
TEST(SparseTest, BudgetCoversFewerNodesThanRanks) {
  const Rules rules = sparse_rules(1024);
  EXPECT_GE(test_budget(1024, 1, rules), test_budget(127, 1, rules));
  Faults faults;
  faults.change = [](Join& join) { join.node = std::to_string(join.rank / 2); };
  FabricModel model(sparse_rules(250), 1, faults);
  model.run();
  EXPECT_FALSE(model.outcome().is_sparse());
  EXPECT_EQ(count_good(model.outcome()), 125U * 124 / 2);
}

}  // namespace
