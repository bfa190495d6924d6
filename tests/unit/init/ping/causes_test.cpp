#include "init/ping/causes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "fabric/address.hpp"
#include "fabric_model.hpp"
#include "init/ping/totals.hpp"

namespace {

using namespace init::ping;
using Kind = Cause::Kind;

Member member(unsigned rank, unsigned rails) {
  Member one;
  one.rank = rank;
  one.host = "host" + std::to_string(rank);
  for (unsigned rail = 0; rail < rails; ++rail) {
    const std::string number = std::to_string(rail);
    Rail port;
    port.device = "mlx5_" + number;
    port.netdev = "eth" + number;
    port.gid_index = 3;
    port.gid = *fabric::parse_address("10." + number + ".0." + std::to_string(rank % 250));
    one.rails.push_back(port);
  }
  return one;
}

Outcome good_job(unsigned members, unsigned rails) {
  Outcome outcome;
  outcome.size = members;
  outcome.rails = rails;
  for (unsigned rank = 0; rank < members; ++rank)
    outcome.members.push_back(member(rank, rails));
  outcome.cells.assign(std::size_t{members} * (members - 1) / 2 * rails, Layer::kGood);
  return outcome;
}

void fail_test(Outcome& outcome, std::size_t one, std::size_t other, unsigned rail, Layer layer = Layer::kRetry,
               Side culprit = Side::kUnknown) {
  const auto [first, second] = std::minmax(one, other);
  outcome.cells[outcome.cell_of(first, second, rail)] = layer;
  outcome.failures.push_back({first, second, rail, rail, {layer, "no answer"}, culprit});
}

void fail_end(Outcome& outcome, std::size_t end, unsigned rail, Layer layer = Layer::kRetry) {
  for (std::size_t peer = 0; peer < outcome.members.size(); ++peer)
    if (peer != end) fail_test(outcome, end, peer, rail, layer);
}

void skip(Outcome& outcome, std::size_t one, std::size_t other, unsigned rail) {
  const auto [first, second] = std::minmax(one, other);
  outcome.cells[outcome.cell_of(first, second, rail)] = Layer::kUntested;
}

void skip_member(Outcome& outcome, std::size_t end) {
  for (std::size_t peer = 0; peer < outcome.members.size(); ++peer) {
    for (unsigned rail = 0; rail < outcome.rails && peer != end; ++rail)
      skip(outcome, end, peer, rail);
  }
}

std::string numbers(const std::vector<unsigned>& ranks) {
  std::string text;
  for (const unsigned rank : ranks)
    text += (text.empty() ? "" : "+") + std::to_string(rank);
  return text;
}

// Returns "rank 3, rail 1, rail 0 of ranks 1+2, rail 0 of rank 4, link 0-1 on rail 2": the objects of the causes with
// their layers.
std::string objects(const std::vector<Cause>& causes) {
  std::string text;
  for (const Cause& cause : causes) {
    const std::string rail = cause.rail ? "rail " + std::to_string(*cause.rail) : "all rails";
    const std::string rank = cause.rank ? std::to_string(*cause.rank) : "?";
    if (!text.empty()) text += ", ";
    if (cause.kind == Kind::kRank) text += "rank " + rank;
    if (cause.kind == Kind::kRailOfRank) text += rail + " of rank " + rank;
    if (cause.kind == Kind::kRail) text += rail;
    if (cause.kind == Kind::kCables) text += "cables";
    if (cause.kind == Kind::kGroup) text += rail + " of ranks " + numbers(cause.ranks);
    if (cause.kind == Kind::kGroup && !cause.unreached.empty()) text += " to " + numbers(cause.unreached);
    if (cause.kind == Kind::kLink)
      text += cause.other ? "link " + rank + "-" + std::to_string(*cause.other) + " on " + rail : "tests";
    text += " " + std::string(about(cause.layer).name);
  }
  return text;
}

struct Row {
  const char* causes;
  unsigned members;
  unsigned rails;
  std::function<void(Outcome&)> change;
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Outcome outcome = good_job(row.members, row.rails);
    row.change(outcome);
    EXPECT_EQ(objects(find_causes(outcome)), row.causes);
  }
}

TEST(Causes, NoneIfAllTestsAreGood) {
  check({{"", 1, 2, [](Outcome&) {}},
         {"", 2, 1, [](Outcome&) {}},
         {"", 7, 3, [](Outcome&) {}},
         {"", 4, 2, [](Outcome& outcome) {
            outcome.crossed.push_back({0, 1, 0, 1, {Layer::kRetry, ""}});
          }}});
}

TEST(Causes, NamesRanksThatDifferOrDoNotCome) {
  Outcome outcome = good_job(4, 2);
  outcome.cells.clear();
  outcome.unequal = {"rank 1 (host1) has 1 x RoCE", "rank 3 (host3) has 4 x RoCE"};
  const auto unequal = find_causes(outcome);
  EXPECT_EQ(objects(unequal), "rank 1 rank, rank 3 rank");
  EXPECT_EQ(unequal[1].message, outcome.unequal[1]);
  EXPECT_EQ(unequal[1].remedy, "run `rdma-init doctor` on this rank");

  const struct {
    std::vector<unsigned> absent;
    const char* message;
  } rows[] = {
      {{3}, "rank 3 did not come: 19 of 20 ranks came"},
      {{3, 5}, "ranks 3 and 5 did not come: 18 of 20 ranks came"},
      {{3, 5, 6}, "ranks 3, 5 and 6 did not come: 17 of 20 ranks came"},
      {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more did not come: 10 of 20 ranks came"}};
  for (const auto& row : rows) {
    Outcome alone;
    alone.size = 20;
    alone.absent = row.absent;
    const auto causes = find_causes(alone);
    ASSERT_EQ(causes.size(), 1U);
    EXPECT_EQ(causes[0].message, row.message);
    EXPECT_EQ(causes[0].rank, row.absent.front());
  }
}

TEST(Causes, ProblemOfRankOrRailExplainsTestsThatDidNotRun) {
  const auto problem_of_rails = [](Outcome& outcome, std::vector<Layer> layers) {
    for (unsigned rail = 0; rail < layers.size(); ++rail) {
      if (layers[rail] == Layer::kGood) continue;
      outcome.members[1].rails[rail].problem = {layers[rail], "model"};
      for (const std::size_t peer : {0U, 2U, 3U})
        skip(outcome, 1, peer, rail);
    }
  };
  check({{"rank 2 rank", 4, 2,
          [](Outcome& outcome) {
            outcome.members[2].problem = {Layer::kRank, "rank 2 ended"};
            skip_member(outcome, 2);
          }},
         {"rank 1 library, rank 2 rank", 3, 2,
          [](Outcome& outcome) {
            outcome.members[1].problem = {Layer::kLibrary, "no libibverbs"};
            outcome.members[2].problem = {Layer::kRank, "silent"};
            skip_member(outcome, 1);
            skip_member(outcome, 2);
          }},
         {"rank 1 memlock", 4, 2,
          [&](Outcome& outcome) {
            problem_of_rails(outcome, {Layer::kMemlock, Layer::kMemlock});
          }},
         {"rail 0 of rank 1 memlock, rail 1 of rank 1 gid", 4, 2,
          [&](Outcome& outcome) {
            problem_of_rails(outcome, {Layer::kMemlock, Layer::kGid});
          }},
         {"rail 1 of rank 1 gid", 4, 2,
          [&](Outcome& outcome) {
            problem_of_rails(outcome, {Layer::kGood, Layer::kGid});
          }},
         // The problem of a rank that is alone.
         {"rank 0 library", 1, 1, [](Outcome& outcome) {
            outcome.members[0].problem = {Layer::kLibrary, ""};
          }}});
}

TEST(Causes, BlamesEndThatFailedWithAllItsPeers) {
  check({{"rail 1 of rank 2 retry", 4, 2, [](Outcome& outcome) { fail_end(outcome, 2, 1); }},
         {"rank 2 retry", 4, 2,
          [](Outcome& outcome) {
            fail_end(outcome, 2, 0);
            fail_end(outcome, 2, 1);
          }},
         // Two broken ends: their peers are good with each other.
         {"rail 0 of rank 1 retry, rail 0 of rank 3 retry", 5, 2,
          [](Outcome& outcome) {
            fail_end(outcome, 1, 0);
            fail_end(outcome, 3, 0);
          }},
         // The rail was not tested further after two failures.
         {"rail 0 of rank 2 retry", 6, 2,
          [](Outcome& outcome) {
            for (std::size_t peer = 0; peer < 6; ++peer)
              if (peer != 2) skip(outcome, 2, peer, 0);
            fail_test(outcome, 2, 0, 0);
            fail_test(outcome, 2, 5, 0);
          }},
         // After rail 0 of rank 0 is explained, one failure of rank 2 is left, with a peer that works.
         {"rail 0 of rank 0 retry, rail 0 of rank 2 retry", 4, 2, [](Outcome& outcome) {
            fail_end(outcome, 0, 0);
            fail_test(outcome, 2, 1, 0);
            skip(outcome, 2, 3, 0);
          }}});
}

TEST(Causes, BlamesEndThatIsProven) {
  check({{"rank 1 gid", 2, 1, [](Outcome& outcome) { fail_test(outcome, 0, 1, 0, Layer::kGid, Side::kSecond); }},
         {"rail 0 of rank 0 route", 4, 2,
          [](Outcome& outcome) { fail_test(outcome, 0, 3, 0, Layer::kRoute, Side::kFirst); }},
         // Each peer has no route to rank 3, which is in the wrong network.
         {"rail 0 of rank 3 route", 4, 2,
          [](Outcome& outcome) {
            for (const std::size_t peer : {0U, 1U, 2U})
              fail_test(outcome, peer, 3, 0, Layer::kRoute, Side::kFirst);
          }},
         // Without any good test, the proven end explains the failures without proof.
         {"rail 0 of rank 0 neighbour", 3, 2, [](Outcome& outcome) {
            fail_test(outcome, 0, 1, 0, Layer::kNeighbour, Side::kFirst);
            fail_test(outcome, 0, 2, 0, Layer::kRetry);
          }}});
}

TEST(Causes, BlamesRailThatFailedBetweenAllMembers) {
  const auto fail_rail = [](Outcome& outcome) {
    for (std::size_t second = 1; second < outcome.members.size(); ++second) {
      for (std::size_t first = 0; first < second; ++first)
        fail_test(outcome, first, second, 1);
    }
  };
  check({{"rail 1 retry", 3, 2, fail_rail},
         {"rail 1 retry", 6, 2, fail_rail},
         {"rail 1 retry", 6, 2,
          [&](Outcome& outcome) {
            fail_rail(outcome);
            for (std::size_t peer = 1; peer < 5; ++peer)
              skip(outcome, 5, peer, 1);
            outcome.failures.clear();
          }},
         {"link 0-1 on rail 1 retry", 2, 2, fail_rail},
         // All tests that ran have rank 0 in common.
         {"rail 1 of rank 0 retry, tests untested", 4, 2, [](Outcome& outcome) {
            fail_end(outcome, 0, 1);
            for (const auto& [first, second] : {std::pair(1U, 2U), std::pair(1U, 3U), std::pair(2U, 3U)})
              skip(outcome, first, second, 1);
          }}});
}

TEST(Causes, NamesLinkIfBothEndsWorkWithOthers) {
  check({{"link 0-1 on rail 0 retry", 2, 1, [](Outcome& outcome) { fail_test(outcome, 0, 1, 0); }},
         {"link 1-3 on rail 1 mtu", 5, 2, [](Outcome& outcome) { fail_test(outcome, 3, 1, 1, Layer::kMtu); }},
         {"rail 0 of rank 0 retry, link 2-4 on rail 1 data", 5, 2, [](Outcome& outcome) {
            fail_test(outcome, 2, 4, 1, Layer::kData);
            fail_end(outcome, 0, 0);
          }}});
}

void fail_between(Outcome& outcome, const std::vector<std::size_t>& these, const std::vector<std::size_t>& those,
                  unsigned rail) {
  for (const std::size_t one : these) {
    for (const std::size_t other : those)
      fail_test(outcome, one, other, rail);
  }
}

TEST(Causes, NamesOneGroupForAllItsFailures) {
  check({// A VLAN: the ranks of each part reach each other.
         {"rail 1 of ranks 1+3 retry", 6, 2,
          [](Outcome& outcome) {
            fail_between(outcome, {1, 3}, {0, 2, 4, 5}, 1);
          }},
         {"all rails of ranks 1+3 retry", 6, 2,
          [](Outcome& outcome) {
            fail_between(outcome, {1, 3}, {0, 2, 4, 5}, 0);
            fail_between(outcome, {1, 3}, {0, 2, 4, 5}, 1);
          }},
         // A leaf switch: neighbours that reach no rank at all.
         {"rail 1 of ranks 2+3 retry", 6, 2,
          [](Outcome& outcome) {
            fail_end(outcome, 2, 1);
            fail_end(outcome, 3, 1);
          }},
         // Three ranks that are no neighbours have a cause each; four ranks have one.
         {"rail 0 of rank 0 retry, rail 0 of rank 2 retry, rail 0 of rank 4 retry", 10, 2,
          [](Outcome& outcome) {
            for (const std::size_t end : {0U, 2U, 4U})
              fail_end(outcome, end, 0);
          }},
         {"rail 0 of ranks 0+2+4+6 retry", 10, 2,
          [](Outcome& outcome) {
            for (const std::size_t end : {0U, 2U, 4U, 6U})
              fail_end(outcome, end, 0);
          }},
         // Two leaf switches without a route between them; both reach ranks 4 and 5.
         {"rail 0 of ranks 0+1 to 2+3 retry", 6, 2,
          [](Outcome& outcome) {
            fail_between(outcome, {0, 1}, {2, 3}, 0);
          }},
         // Both ends work with other ranks, on all rails.
         {"link 0-1 on all rails retry", 4, 2,
          [](Outcome& outcome) {
            fail_test(outcome, 0, 1, 0);
            fail_test(outcome, 0, 1, 1);
          }},
         {"rail 0 of rank 0 retry", 8, 2,
          [](Outcome& outcome) {
            fail_between(outcome, {0}, {1, 3, 5}, 0);
          }},
         {"all rails retry", 4, 2, [](Outcome& outcome) {
            for (unsigned rail = 0; rail < 2; ++rail) {
              for (std::size_t peer = 0; peer < 4; ++peer)
                fail_end(outcome, peer, rail);
            }
          }}});
}

// Rank 3 is broken inside of a group, and splits it in two.
TEST(Causes, NamesWholeGroupIfOneOfItsMembersIsBroken) {
  const auto divide = [](Outcome& outcome, unsigned rail) {
    fail_between(outcome, {2, 3, 4, 5}, {0, 1, 6, 7, 8, 9}, rail);
    fail_between(outcome, {3}, {2, 4, 5}, rail);
  };
  check(
      {{"rail 0 of ranks 2+3+4+5 retry, rail 0 of rank 3 retry", 10, 2, [&](Outcome& outcome) { divide(outcome, 0); }},
       // The other rail shows the extent of the group.
       {"all rails of ranks 2+3+4+5 retry, rail 0 of rank 5 retry", 10, 2, [](Outcome& outcome) {
          for (const unsigned rail : {0U, 1U})
            fail_between(outcome, {2, 3, 4, 5}, {0, 1, 6, 7, 8, 9}, rail);
          fail_between(outcome, {5}, {2, 3, 4}, 0);
        }}});
}

// Rail 1 of rank 2 has no good test, but all its failures are those of the dead rail.
TEST(Causes, NamesRankWhoseOtherRailIsDead) {
  check({{"rank 2 retry, rail 1 retry", 6, 3, [](Outcome& outcome) {
            fail_end(outcome, 2, 0);
            fail_end(outcome, 2, 2);
            for (std::size_t peer = 0; peer < 6; ++peer)
              fail_end(outcome, peer, 1);
          }}});
}

TEST(Causes, NamesRailForScatteredFailures) {
  Outcome outcome = good_job(40, 1);
  std::mt19937 engine(1);
  for (int turn = 0; turn < 100; ++turn)
    outcome.cells[engine() % outcome.cells.size()] = Layer::kRetry;
  const auto causes = find_causes(outcome);
  EXPECT_EQ(objects(causes), "rail 0 retry");
  EXPECT_TRUE(causes.front().message.starts_with("rail 0 of all ranks: ")) << causes.front().message;
  EXPECT_LT(causes.front().failed, causes.front().tested);
}

TEST(Causes, UnequalMtuIsCauseWithoutFailure) {
  Outcome outcome = good_job(2, 1);
  outcome.members[0].rails[0].mtu = 4096;
  outcome.members[1].rails[0].mtu = 1024;
  const auto causes = find_causes(outcome);
  ASSERT_EQ(objects(causes), "rank 1 mtu");
  EXPECT_EQ(causes[0].message,
            "rank 1 (host1), mlx5_0:1 (netdev eth0, GID index 3 10.0.0.1): active MTU 1024, 1 of 2 ranks has active "
            "MTU 4096: NCCL 2.20.3 to 2.29 sends with the MTU of the sender, so that its connections break or hang; "
            "NCCL 2.30 takes the smaller one");
  EXPECT_EQ(causes[0].remedy, "set the same MTU on both netdevs and on all switches between them");
  EXPECT_FALSE(is_good(outcome, causes));
}

TEST(Causes, NamesValuesThatDiffer) {
  const auto infiniband = [](Outcome& outcome, unsigned pkey) {
    for (Member& one : outcome.members) {
      for (Rail& rail : one.rails) {
        rail.infiniband = true;
        rail.netdev = "";
        rail.gid = *fabric::parse_address("fe80::1");
        rail.pkey = static_cast<std::uint16_t>(pkey);
      }
    }
  };
  check({{"rail 0 of ranks 1+4 pkey", 6, 2,
          [&](Outcome& outcome) {
            infiniband(outcome, 0xFFFF);
            outcome.members[1].rails[0].pkey = outcome.members[4].rails[0].pkey = 0x8001;
            fail_between(outcome, {1, 4}, {0, 2, 3, 5}, 0);
          }},
         // Limited members do not reach each other.
         {"all rails of ranks 1+4 pkey", 6, 2,
          [&](Outcome& outcome) {
            infiniband(outcome, 0xFFFF);
            for (unsigned rail = 0; rail < 2; ++rail) {
              outcome.members[1].rails[rail].pkey = outcome.members[4].rails[rail].pkey = 0x7FFF;
              fail_test(outcome, 1, 4, rail);
            }
          }},
         {"all rails of ranks 0+1+2+3 pkey", 4, 2,
          [&](Outcome& outcome) {
            infiniband(outcome, 0x7FFF);
            for (std::size_t peer = 0; peer < 4; ++peer) {
              fail_end(outcome, peer, 0);
              fail_end(outcome, peer, 1);
            }
          }},
         {"rank 2 gid", 4, 1,
          [](Outcome& outcome) {
            outcome.members[2].rails[0].gid = *fabric::parse_address("fd00::2");
            fail_end(outcome, 2, 0);
          }},
         {"rail 1 of ranks 0+1 retry", 5, 2,
          [&](Outcome& outcome) {
            infiniband(outcome, 0xFFFF);
            outcome.members[0].rails[1].gid = outcome.members[1].rails[1].gid = *fabric::parse_address("fe80:0:0:1::1");
            fail_between(outcome, {0, 1}, {2, 3, 4}, 1);
          }},
         // A value that differs is no cause if the tests are good, or if the failure has another object.
         {"rail 0 of rank 3 retry", 5, 2, [](Outcome& outcome) {
            outcome.members[2].rails[0].gid = *fabric::parse_address("fd00::2");
            fail_end(outcome, 3, 0);
          }}});
}

TEST(Causes, NamesDirectCables) {
  Outcome outcome = good_job(3, 2);
  fail_test(outcome, 0, 1, 1);
  fail_test(outcome, 1, 2, 0);
  fail_test(outcome, 0, 2, 0);
  fail_test(outcome, 0, 2, 1);
  const auto causes = find_causes(outcome);
  ASSERT_EQ(objects(causes), "cables retry");
  EXPECT_EQ(causes[0].failed, 4U);
  EXPECT_NE(causes[0].remedy.find("NCCL_IB_SUBNET_AWARE_ROUTING=1"), std::string::npos);
  // A switch that splits four ranks in two pairs is another fault.
  check({{"all rails of ranks 2+3 retry", 4, 2, [](Outcome& pairs) {
            fail_between(pairs, {0, 1}, {2, 3}, 0);
            fail_between(pairs, {0, 1}, {2, 3}, 1);
          }}});
}

// UDP ports and priority flow control are of Ethernet.
TEST(Causes, RemediesFitTheLinkLayer) {
  const std::function<void(Outcome&)> changes[] = {
      [](Outcome& outcome) { fail_end(outcome, 1, 0); }, [](Outcome& outcome) { fail_test(outcome, 0, 1, 0); },
      [](Outcome& outcome) {
        fail_between(outcome, {0, 1}, {2, 3}, 0);
      },
      [](Outcome& outcome) {
        for (std::size_t peer = 0; peer < 4; ++peer)
          fail_end(outcome, peer, 0);
      },
      [](Outcome& outcome) { fail_test(outcome, 0, 1, 0, Layer::kNeighbour); }};
  for (const auto& change : changes) {
    for (const bool infiniband : {false, true}) {
      Outcome outcome = good_job(4, 2);
      for (Member& one : outcome.members) {
        for (Rail& rail : one.rails)
          rail.infiniband = infiniband;
      }
      change(outcome);
      const auto causes = find_causes(outcome);
      ASSERT_EQ(causes.size(), 1U);
      EXPECT_EQ(causes[0].remedy.find("ibdiagnet") != std::string::npos, infiniband) << causes[0].remedy;
      if (!infiniband) continue;
      for (const char* const word : {"UDP", "priority flow", "VLAN"})
        EXPECT_EQ(causes[0].remedy.find(word), std::string::npos) << causes[0].remedy;
    }
  }
}

TEST(Causes, NeverGoodIfTestHasNoGoodResult) {
  check({{"tests untested", 3, 2, [](Outcome& outcome) { skip(outcome, 0, 2, 1); }},
         {"tests untested", 3, 2, [](Outcome& outcome) { outcome.cells.clear(); }},
         {"tests untested", 3, 2, [](Outcome& outcome) { outcome.cells.pop_back(); }},
         {"link 0-1 on rail 0 verbs", 3, 2, [](Outcome& outcome) { outcome.cells[0] = Layer::kVerbs; }},
         // A failure whose cell says otherwise.
         {"link 0-1 on rail 0 retry", 3, 2,
          [](Outcome& outcome) {
            fail_test(outcome, 0, 1, 0);
            outcome.cells[0] = Layer::kGood;
          }},
         {"link 0-1 on rail 0 untested", 3, 2, [](Outcome& outcome) { fail_test(outcome, 0, 1, 0, Layer::kUntested); }},
         // The problem of rank 0 does not explain the test of ranks 1 and 2.
         {"rank 0 rank, tests untested", 3, 1, [](Outcome& outcome) {
            outcome.members[0].problem = {Layer::kRank, "silent"};
            skip_member(outcome, 0);
            skip(outcome, 1, 2, 0);
          }}});
  // Every single result that is not good.
  for (std::size_t layer = 1; layer < kLayers; ++layer) {
    for (std::size_t cell = 0; cell < 12; ++cell) {
      Outcome outcome = good_job(4, 2);
      outcome.cells[cell] = static_cast<Layer>(layer);
      EXPECT_EQ(find_causes(outcome).size(), 1U) << layer << " " << cell;
    }
  }
}

TEST(Causes, ReportsHowManyTestsDidNotRunInTime) {
  Outcome outcome = good_job(4, 2);
  outcome.out_of_time = true;
  skip(outcome, 0, 3, 0);
  skip(outcome, 1, 3, 1);
  const auto causes = find_causes(outcome);
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].message, "2 of 12 tests did not run: the time budget ended");
  EXPECT_EQ(causes[0].layer, Layer::kUntested);
}

TEST(Causes, MessageNamesObjectsAndOneExample) {
  const std::vector<std::pair<std::string, std::function<void(Outcome&)>>> rows = {
      {"rank 2 (host2), mlx5_1:1 (netdev eth1, GID index 3 10.1.0.2): 3 of 3 tests failed, for example with rank 1 "
       "(host1), mlx5_1:1 (netdev eth1, GID index 3 10.1.0.1): gid: no answer",
       [](Outcome& outcome) {
         fail_test(outcome, 0, 2, 1);
         fail_test(outcome, 1, 2, 1, Layer::kGid);
         fail_test(outcome, 2, 3, 1);
       }},
      {"rank 2 (host2), mlx5_0:1 (netdev eth0, GID index 3 10.0.0.2): 6 of 6 tests failed on 2 rails, for example with "
       "rank 0 (host0), mlx5_0:1 (netdev eth0, GID index 3 10.0.0.0): retry: no answer",
       [](Outcome& outcome) {
         fail_end(outcome, 2, 0);
         fail_end(outcome, 2, 1);
       }},
      {"rail 0 between rank 0 (host0), mlx5_0:1 (netdev eth0, GID index 3 10.0.0.0) and rank 3 (host3), mlx5_0:1 "
       "(InfiniBand, no netdev): 1 of 1 test failed: retry: no answer",
       [](Outcome& outcome) {
         outcome.members[3].rails[0].infiniband = true;
         outcome.members[3].rails[0].netdev = "";
         fail_test(outcome, 0, 3, 0);
       }},
      {"rank 1 (host1): rank: rank 1 ended in round 2 of 3; 0 of 2 tests failed, 4 did not run",
       [](Outcome& outcome) {
         outcome.members[1].problem = {Layer::kRank, "rank 1 ended in round 2 of 3"};
         for (const auto& [peer, rail] : {std::pair(0U, 0U), std::pair(0U, 1U), std::pair(2U, 0U), std::pair(2U, 1U)})
           skip(outcome, 1, peer, rail);
       }},
      {"rank 1 (host1), mlx5_1:1 (netdev eth1, GID index 3 10.1.0.1): gid: empty slot; 3 tests did not run",
       [](Outcome& outcome) {
         outcome.members[1].rails[1].problem = {Layer::kGid, "empty slot"};
         for (const std::size_t peer : {0U, 2U, 3U})
           skip(outcome, 1, peer, 1);
       }}};
  for (const auto& [message, change] : rows) {
    Outcome outcome = good_job(4, 2);
    change(outcome);
    const auto causes = find_causes(outcome);
    ASSERT_EQ(causes.size(), 1U) << message;
    EXPECT_EQ(causes[0].message, message);
  }
}

TEST(Causes, TextsOfRanksArePrintable) {
  const std::string hostile = "\x1b[2J\n$(reboot)";
  const std::function<void(Outcome&)> changes[] = {[](Outcome& outcome) { fail_test(outcome, 0, 1, 0); },
                                                   [](Outcome& outcome) { fail_end(outcome, 1, 0); },
                                                   [](Outcome& outcome) {
                                                     for (std::size_t peer = 0; peer < 4; ++peer)
                                                       fail_end(outcome, peer, 0);
                                                   },
                                                   [&](Outcome& outcome) {
                                                     outcome.members[2].problem = {Layer::kRank, hostile};
                                                   },
                                                   [&](Outcome& outcome) {
                                                     outcome.members[2].rails[1].problem = {Layer::kGid, hostile};
                                                   }};
  for (const auto& change : changes) {
    Outcome outcome = good_job(4, 2);
    change(outcome);
    for (Member& one : outcome.members) {
      one.host = hostile;
      for (Rail& rail : one.rails)
        rail.device = rail.netdev = hostile;
    }
    for (FailedPair& failed : outcome.failures)
      failed.failure.detail = hostile;
    const auto causes = find_causes(outcome);
    ASSERT_FALSE(causes.empty());
    for (const Cause& cause : causes)
      EXPECT_EQ(cause.message.find_first_of("\x1b\n"), std::string::npos) << cause.message;
  }
}

TEST(Causes, NamesEachFaultOf1024RanksWith8Rails) {
  Outcome outcome = good_job(1024, 8);
  fail_end(outcome, 17, 3);
  fail_test(outcome, 100, 900, 7);
  for (unsigned rail = 0; rail < 8; ++rail)
    fail_end(outcome, 1023, rail, Layer::kNeighbour);
  outcome.members[500].problem = {Layer::kRank, "silent"};
  skip_member(outcome, 500);
  EXPECT_EQ(objects(find_causes(outcome)),
            "rank 500 rank, rank 1023 neighbour, rail 3 of rank 17 retry, link 100-900 on rail 7 retry");
}

TEST(Causes, NamesDeadRailOf1024RanksWith8Rails) {
  Outcome outcome = good_job(1024, 8);
  for (std::size_t second = 1; second < 1024; ++second) {
    for (std::size_t first = 0; first < second; ++first)
      outcome.cells[outcome.cell_of(first, second, 5)] = Layer::kRetry;
  }
  EXPECT_EQ(objects(find_causes(outcome)), "rail 5 retry");
}

// Each broken end of a random fabric is named, and a fabric without any is good.
TEST(Causes, NamesBrokenEndsThatTheRefereeFound) {
  std::mt19937 engine(1);
  for (int turn = 0; turn < 200; ++turn) {
    const auto size = static_cast<unsigned>(5 + engine() % 12);
    std::set<std::pair<unsigned, unsigned>> broken;  // ranks and rails; at most two of them
    for (auto number = engine() % 3; number > 0; --number)
      broken.emplace(engine() % size, engine() % 3);
    ping_test::Faults faults;
    faults.result = [&](unsigned rank, unsigned peer, RailPair rails, std::uint32_t) {
      const bool hits = broken.contains({rank, rails.own}) || broken.contains({peer, rails.peer});
      return hits ? ping_test::failed(Layer::kRetry) : TestResult{{}, false, 0};
    };
    Rules rules;
    rules.size = size;
    ping_test::FabricModel model(rules, 3, faults);
    model.run();
    std::set<std::pair<unsigned, unsigned>> named;
    for (const Cause& cause : find_causes(model.outcome())) {
      if (cause.layer == Layer::kUntested) continue;  // a good end that met two broken ones first
      EXPECT_EQ(cause.kind, cause.ranks.empty() ? Kind::kRailOfRank : Kind::kGroup) << cause.message;
      for (const unsigned rank : cause.ranks.empty() ? std::vector<unsigned>{cause.rank.value_or(size)} : cause.ranks)
        named.emplace(rank, cause.rail.value_or(size));
    }
    EXPECT_EQ(named, broken) << turn;
  }
}

TEST(SlowPairs, NamesPairsBelowFourFifthsOfTheMedian) {
  Outcome outcome = good_job(4, 2);
  EXPECT_EQ(median_gbps(outcome), 0);
  EXPECT_TRUE(find_slow_pairs(outcome).empty());
  outcome.gbps.assign(outcome.cells.size(), 100.0F);
  outcome.gbps[outcome.cell_of(1, 2, 0)] = 81;
  outcome.gbps[outcome.cell_of(1, 3, 1)] = 79;
  outcome.gbps[outcome.cell_of(0, 3, 1)] = 0;
  EXPECT_EQ(median_gbps(outcome), 100);
  const auto slow = find_slow_pairs(outcome);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].first, 1U);
  EXPECT_EQ(slow[0].second, 3U);
  EXPECT_EQ(slow[0].rail, 1U);
  EXPECT_EQ(slow[0].gbps, 79);
}

}  // namespace
