#include "init/ping/referee.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fabric_model.hpp"

namespace {

using namespace ping_test;

Rules rules_for(unsigned size) {
  Rules rules;
  rules.size = size;
  return rules;
}

std::size_t count_cells(const Outcome& outcome, Layer layer) {
  return static_cast<std::size_t>(std::ranges::count(outcome.cells, layer));
}

// The model's result if one end of the test is this rank and rail.
auto broken_rail(unsigned broken, unsigned rail, Layer layer) {
  return [=](unsigned rank, unsigned peer, RailPair rails, std::uint32_t) {
    const bool hits = (rank == broken && rails.own == rail) || (peer == broken && rails.peer == rail);
    return hits ? failed(layer) : TestResult{{}, false, 0};
  };
}

TEST(Referee, TestsEveryPairOnceOnEveryRail) {
  for (const unsigned size : {2U, 3U, 4U, 7U, 16U}) {
    FabricModel model(rules_for(size), 2, {});
    model.run();
    EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), size * (size - 1)) << size;
    EXPECT_EQ(model.outcome().cells.size(), size * (size - 1)) << size;
    EXPECT_EQ(model.tests().size(), size * (size - 1)) << size;
    EXPECT_TRUE(model.outcome().failures.empty()) << size;
  }
}

TEST(Referee, TestsCrossedRailsUntilNoneOfThemWorks) {
  for (const bool crosses : {false, true}) {
    Rules rules = rules_for(4);
    rules.all_rails = true;
    Faults faults;
    faults.result = [=](unsigned rank, unsigned peer, RailPair rails, std::uint32_t) {
      const bool works = rails.own == rails.peer || (crosses && rank + peer != 5);
      return works ? TestResult{{}, false, 0} : failed(Layer::kRetry);
    };
    FabricModel model(rules, 3, faults);
    model.run();
    EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 18U) << crosses;
    EXPECT_EQ(model.outcome().crossed_tested, crosses ? 36U : 6U);
    EXPECT_EQ(model.outcome().crossed.size(), 6U) << crosses;
    EXPECT_TRUE(model.outcome().failures.empty()) << crosses;
  }
}

TEST(Referee, OneRankOfEachNodeTests) {
  Faults faults;
  faults.change = [](Join& join) { join.node = join.rank % 2 == 0 ? "even" : "odd"; };
  FabricModel model(rules_for(6), 2, faults);
  model.run();
  ASSERT_EQ(model.outcome().members.size(), 2U);
  EXPECT_EQ(model.outcome().members[0].waiting, (std::vector<unsigned>{2, 4}));
  EXPECT_EQ(model.outcome().members[1].waiting, (std::vector<unsigned>{3, 5}));
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 2U);
}

TEST(Referee, RankWithOtherPortsThanItsNeighbourTests) {
  Faults faults;
  faults.change = [](Join& join) {
    join.node = join.rank < 3 ? "a" : "b";
    if (join.rank == 1) join.rails[0].device = "mlx5_7";
  };
  FabricModel model(rules_for(4), 1, faults);
  model.run();
  ASSERT_EQ(model.outcome().members.size(), 3U);
  EXPECT_EQ(model.outcome().members[0].waiting, std::vector<unsigned>{2});
  EXPECT_EQ(model.outcome().members[1].rank, 1U);
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 3U);
}

TEST(Referee, StopsTestingRailThatFailedWithTwoRanks) {
  Faults faults;
  faults.result = broken_rail(3, 1, Layer::kGid);
  FabricModel model(rules_for(8), 2, faults);
  model.run();
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGid), 3U);  // two, and one of the retest
  EXPECT_EQ(count_cells(model.outcome(), Layer::kUntested), 4U);
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 56U - 7U);
}

TEST(Referee, ResumesGoodRailThatMetBrokenRailsFirst) {
  // In the schedule of 8 members, member 7 meets 0, 1 and 2 first.
  Faults faults;
  faults.result = [](unsigned rank, unsigned peer, RailPair, std::uint32_t) {
    return std::min(rank, peer) < 2 ? failed(Layer::kRetry) : TestResult{{}, false, 0};
  };
  FabricModel model(rules_for(8), 1, faults);
  model.run();
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 15U);
  for (const auto& [pair, rails] : model.tests())
    EXPECT_LT(pair.first, pair.second);
}

TEST(Referee, NamesMtuIfSmallWritesArrive) {
  Faults faults;
  faults.result = [](unsigned rank, unsigned peer, RailPair rails, std::uint32_t bytes) {
    const bool hits = (rank == 1 || peer == 1) && rails.own == 0 && bytes > 1500;
    return hits ? failed(Layer::kRetry) : TestResult{{}, false, 0};
  };
  FabricModel model(rules_for(4), 2, faults);
  const double end = model.run();
  EXPECT_GE(count_cells(model.outcome(), Layer::kMtu), 1U);
  EXPECT_EQ(model.outcome().failures.front().failure.detail,
            "64 bytes arrive, 65536 bytes in packets of MTU 4096 do not");
  EXPECT_LT(end, 30);
}

TEST(Referee, TakesResultOfTheEndThatHasTheCause) {
  Faults faults;
  faults.result = [](unsigned rank, unsigned peer, RailPair, std::uint32_t) {
    if (rank == 2) return failed(Layer::kRetry, true);
    return peer == 2 ? failed(Layer::kGid) : TestResult{{}, false, 0};
  };
  FabricModel model(rules_for(3), 1, faults);
  model.run();
  ASSERT_EQ(model.outcome().failures.size(), 2U);
  for (const FailedPair& pair : model.outcome().failures) {
    EXPECT_EQ(pair.second, 2U);
    EXPECT_EQ(pair.culprit, Side::kSecond);
    EXPECT_EQ(pair.failure.layer, Layer::kRetry);
  }
}

TEST(Referee, ReportsRanksThatDoNotCome) {
  Faults faults;
  faults.absent = {2, 5};
  FabricModel model(rules_for(6), 2, faults);
  EXPECT_DOUBLE_EQ(model.run(), 30);
  EXPECT_EQ(model.outcome().absent, (std::vector<unsigned>{2, 5}));
  EXPECT_TRUE(model.tests().empty());
}

TEST(Referee, NamesRankThatEndsOrIsSilent) {
  for (const bool ends : {false, true}) {
    Faults faults;
    (ends ? faults.ended_in_round : faults.silent_from_round)[3] = 2;
    FabricModel model(rules_for(6), 2, faults);
    EXPECT_LT(model.run(), 20) << ends;
    EXPECT_EQ(model.outcome().members[3].problem,
              (Failure{Layer::kRank, ends ? "rank 3 ended in round 2 of 5" : "it does not answer for 9 s"}));
    EXPECT_EQ(count_cells(model.outcome(), Layer::kUntested), 8U) << ends;
    EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 22U) << ends;
  }
}

TEST(Referee, NamesRankThatOpensNoHca) {
  Faults faults;
  faults.never_prepared = {1};
  FabricModel model(rules_for(3), 1, faults);
  EXPECT_LT(model.run(), 12);
  EXPECT_EQ(model.outcome().members[1].problem, (Failure{Layer::kRank, "it does not answer for 10 s"}));
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 1U);
}

TEST(Referee, StopsBeforeTrafficIfHcasDiffer) {
  Faults faults;
  faults.change = [](Join& join) {
    if (join.rank != 2) return;
    join.rails.pop_back();
    join.unused = {"mlx5_1:1: the port is not active"};
  };
  FabricModel model(rules_for(4), 2, faults);
  EXPECT_LT(model.run(), 1);
  EXPECT_EQ(model.outcome().unequal,
            std::vector<std::string>{"rank 2 (host2) has 1 x RoCE 400 Gb/s, 3 of 4 ranks have 2 x RoCE 400 Gb/s; not "
                                     "used: mlx5_1:1: the port is not active"});
  EXPECT_TRUE(model.tests().empty());
}

TEST(Referee, RefusesStrangersAndGoesOn) {
  const struct {
    const char* reason;
    void (*change)(Join&);
  } rows[] = {{"it counts 9 ranks and rank 0 counts 3", [](Join& join) { join.size = 9; }},
              {"its rank 3 is not below 3", [](Join& join) { join.rank = 3; }},
              {"rank 0 is here already, from host0", [](Join& join) { join.rank = 0; }}};
  for (const auto& row : rows) {
    FabricModel model(rules_for(3), 1, {});
    model.receive(0, model.join(0));
    Join stranger = model.join(1);
    row.change(stranger);
    model.receive(7, stranger);
    model.deliver();
    ASSERT_EQ(model.refusals().size(), 1U) << row.reason;
    EXPECT_EQ(model.refusals().front().reason, row.reason);
    EXPECT_EQ(model.outcome().strangers.size(), 1U);
    model.receive(1, model.join(1));
    model.receive(2, model.join(2));
    EXPECT_EQ(model.outcome().members.size(), 3U) << row.reason;
  }
}

TEST(Referee, ReportsConnectionWithoutProofOfTheToken) {
  FabricModel model(rules_for(2), 1, {});
  model.referee().refuse(7, "10.0.0.9:5", {kProtocol, "", 1, "host\n"}, "it has the token of another job");
  const auto outgoing = model.referee().take_outgoing(true, 0);
  ASSERT_EQ(outgoing.size(), 1U);
  EXPECT_TRUE(outgoing.front().is_last);
  EXPECT_EQ(std::get<Refusal>(outgoing.front().message).reason, "it has the token of another job");
  EXPECT_EQ(model.outcome().strangers,
            std::vector<std::string>{"refused 10.0.0.9:5 (rank 1, host?): it has the token of another job"});
}

TEST(Referee, ConnectionHasOneSeat) {
  FabricModel model(rules_for(3), 1, {});
  model.receive(1, model.join(1));
  model.receive(1, model.join(2));
  model.deliver();
  ASSERT_EQ(model.refusals().size(), 1U);
  EXPECT_EQ(model.refusals().front().reason, "this connection has a rank already");
}

TEST(Referee, NeverTakesGoodResultOfFailedQueuePair) {
  for (const bool connects : {false, true}) {
    FabricModel model(rules_for(2), 1, {});
    for (const unsigned rank : {0U, 1U})
      model.receive(rank, model.join(rank));
    for (const unsigned rank : {0U, 1U})
      model.receive(rank, Prepared{{}, model.join(rank).rails});
    const Failure memlock{Layer::kMemlock, "too low"};
    for (const unsigned rank : {0U, 1U}) {
      Contact contact;
      if (!connects) contact.failure = memlock;
      model.receive(rank, Contacts{1, {contact}});
    }
    for (const unsigned rank : {0U, 1U})
      model.receive(rank, Connected{1, {connects && rank == 1 ? memlock : Failure{}}});
    for (const unsigned rank : {0U, 1U})
      model.receive(rank, Results{1, {{}}});
    EXPECT_EQ(model.outcome().cells, std::vector<Layer>{Layer::kMemlock}) << connects;
  }
}

TEST(Referee, MessageBeforeThePreparationDropsOnlyItsSender) {
  Faults faults;
  faults.never_prepared = {1};
  FabricModel model(rules_for(3), 1, faults);
  for (const unsigned rank : {0U, 1U, 2U})
    model.receive(rank, model.join(rank));
  model.receive(1, Go{0, {}});
  model.deliver();
  model.finish();
  EXPECT_EQ(model.outcome().members[1].problem,
            (Failure{Layer::kRank, "it sent a message that rank 0 does not expect"}));
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 1U);
}

TEST(Referee, RankThatRestartsInTheMeetingComesAgain) {
  FabricModel model(rules_for(2), 1, {});
  model.receive(1, model.join(1));
  model.referee().lose(2, 1);
  model.receive(1, model.join(1));
  EXPECT_EQ(model.run() < 1, true);
  EXPECT_EQ(count_cells(model.outcome(), Layer::kGood), 1U);
}

TEST(Referee, DropsRankThatBreaksTheProtocol) {
  const Message wrong[] = {Go{1, {1}},       Results{1, {{}}}, Contacts{9, {{}}},
                           Connected{1, {}}, Round{},          ping::Verdict{0, "", ""}};
  for (const Message& message : wrong) {
    FabricModel model(rules_for(3), 1, {});
    for (const unsigned rank : {0U, 1U, 2U})
      model.receive(rank, model.join(rank));
    for (const unsigned rank : {0U, 1U, 2U})
      model.receive(rank, Prepared{{}, model.join(rank).rails});
    model.receive(1, message);
    EXPECT_EQ(model.outcome().members[1].problem,
              (Failure{Layer::kRank, "it sent a message that rank 0 does not expect"}))
        << message.index();
    model.deliver();
  }
}

// Every mixture of faults ends within the time that was promised.
TEST(Referee, EndsWithinItsBudget) {
  std::mt19937 engine(1);
  const auto below = [&](unsigned end) { return static_cast<unsigned>(engine() % end); };
  const auto chance = [&](double p) { return std::bernoulli_distribution(p)(engine); };
  for (int turn = 0; turn < 150; ++turn) {
    const unsigned size = 2 + below(24);
    const unsigned rails = 1 + below(4);
    Rules rules = rules_for(size);
    rules.all_rails = chance(0.3);
    rules.bandwidth = chance(0.3);
    Faults faults;
    for (unsigned rank = 0; rank < size; ++rank) {
      if (chance(0.02)) faults.absent.insert(rank);
      if (chance(0.1)) faults.silent_from_round[rank] = below(size);
      if (chance(0.1)) faults.ended_in_round[rank] = below(size);
      if (chance(0.05)) faults.never_prepared.insert(rank);
    }
    const double share = chance(0.3) ? 1 : 0.3;
    faults.result = [&, share](unsigned, unsigned, RailPair, std::uint32_t) {
      return chance(share) ? failed(static_cast<Layer>(1 + below(kLayers - 1))) : TestResult{{}, false, 0};
    };
    FabricModel model(rules, rails, faults);
    const double end = model.run();
    EXPECT_TRUE(model.referee().is_finished()) << turn;
    EXPECT_LE(end, rules.meeting_seconds + 10.25 + test_budget(size, rails, rules)) << turn;
  }
}

TEST(Referee, ReportsThatItRanOutOfTime) {
  Faults faults;
  faults.result = [](unsigned rank, unsigned peer, RailPair, std::uint32_t) {
    // The pairs of the first round work, so no rail is suspended.
    return (rank + peer) % 63 == 0 ? TestResult{{}, false, 0} : failed(Layer::kRetry);
  };
  FabricModel model(rules_for(64), 1, faults);
  model.run();
  EXPECT_TRUE(model.outcome().out_of_time);
  EXPECT_GT(count_cells(model.outcome(), Layer::kUntested), 0U);
}

}  // namespace
