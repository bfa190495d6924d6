#include "init/ping/relay.hpp"

#include <gtest/gtest.h>

namespace {

using namespace init::ping;

constexpr int kRank0 = 1;

// Returns "2:Attach" for each message of a frame to rank 0, "-> 3 Welcome" for one to the connection of a rank.
std::string name_of(const Message& message) {
  constexpr const char* kNames[] = {"Hello",     "Refusal", "Prepare",     "Prepared", "Round",     "Contacts",
                                    "Connected", "Go",      "Results",     "Verdict",  "Challenge", "Proof",
                                    "Join",      "Welcome", "BecomeRelay", "RelayAt",  "MoveTo",    "StayDirect",
                                    "Attach",    "Lost",    "Bundle"};
  return kNames[message.index()];
}

std::string sent(Relay& relay, double now) {
  std::string text;
  for (const auto& one : relay.take_outgoing(true, now)) {
    if (!text.empty()) text += ", ";
    const auto* const bundle = std::get_if<Bundle>(&one.message);
    if (bundle == nullptr) text += "-> " + std::to_string(one.connection) + " " + name_of(one.message);
    if (one.is_last) text += "!";
    if (bundle == nullptr) continue;
    EXPECT_EQ(one.connection, kRank0);
    text += "[";
    for (const Carried& carried : bundle->carried)
      text += (text.ends_with("[") ? "" : " ") + std::to_string(carried.rank) + ":" + name_of(*decode(carried.frame));
    text += "]";
  }
  return text;
}

// A relay with the ranks 64 and 65 at the connections 2 and 3.
Relay relay_of_two() {
  Relay relay(kRank0, 0, 100);
  for (const unsigned rank : {64U, 65U})
    relay.receive(static_cast<int>(rank) - 62, "", Attach{rank}, 0);
  static_cast<void>(relay.take_outgoing(true, 0));
  static_cast<void>(relay.take_outgoing(true, 1));
  return relay;
}

Bundle to_both(const Message& message) {
  return {{{64, encode(message)}, {65, encode(message)}}};
}

TEST(Relay, PassesMessagesInBothDirections) {
  Relay relay = relay_of_two();
  EXPECT_TRUE(relay.has_seat(2));
  EXPECT_FALSE(relay.has_seat(kRank0));
  relay.receive(kRank0, "", to_both(Go{1, {}}), 2);
  EXPECT_EQ(sent(relay, 2), "-> 2 Go, -> 3 Go");
  relay.receive(2, "", Results{1, {}}, 3);
  EXPECT_EQ(sent(relay, 3), "") << "it waits for the second rank";
  relay.receive(3, "", Results{1, {}}, 3.005);
  EXPECT_EQ(sent(relay, 3.005), "[64:Results 65:Results]");
}

TEST(Relay, DoesNotWaitLongForSlowRank) {
  Relay relay = relay_of_two();
  relay.receive(kRank0, "", to_both(Go{1, {}}), 2);
  static_cast<void>(sent(relay, 2));
  relay.pass(2);
  relay.receive(2, "", Results{1, {}}, 2.5);
  static_cast<void>(relay.take_outgoing(true, 2.5));
  EXPECT_LE(relay.deadline(), 2.5 + Bundles::kGatherSeconds);
  EXPECT_EQ(sent(relay, 2.5 + Bundles::kGatherSeconds), "[64:Results]");
}

TEST(Relay, ReportsEndOfRank) {
  Relay relay = relay_of_two();
  relay.receive(kRank0, "", to_both(Go{1, {}}), 2);
  static_cast<void>(sent(relay, 2));
  relay.lose(3, 2);
  relay.receive(2, "", Results{1, {}}, 2);
  EXPECT_EQ(sent(relay, 2), "[65:Lost 64:Results]") << "no answer of the rank that ended is expected";
  relay.receive(kRank0, "", to_both(Go{2, {}}), 3);
  EXPECT_EQ(sent(relay, 3), "-> 2 Go");
  relay.lose(9, 3);
}

TEST(Relay, RefusesRankThatIsHereOrNotExpected) {
  Relay relay = relay_of_two();
  relay.receive(4, "", Attach{65}, 2);
  EXPECT_EQ(sent(relay, 2), "-> 4 Welcome!");
  relay.receive(5, "", Attach{66}, 2);
  relay.receive(kRank0, "", Bundle{{{66, encode(Welcome{false, "why", 0})}}}, 2);
  EXPECT_EQ(sent(relay, 3), "-> 5 Welcome!");
  EXPECT_FALSE(relay.has_seat(5));
  relay.receive(6, "", Results{1, {}}, 2);
  relay.receive(kRank0, "", Bundle{{{65, "x"}, {77, encode(Lost{})}}}, 2);
  relay.refuse(6, "", {}, "it has the token of another job");
  EXPECT_EQ(sent(relay, 4), "-> 6 Refusal!, [66:Attach]");
}

TEST(Relay, ShowsEachSecondThatItRuns) {
  Relay relay = relay_of_two();
  relay.pass(2);
  EXPECT_EQ(sent(relay, 2), "[]");
  EXPECT_DOUBLE_EQ(relay.deadline(), 2 + kBeatSeconds);
  relay.pass(2.5);
  EXPECT_EQ(sent(relay, 2.5), "");
}

TEST(Relay, PassesOnTheVerdictOrMakesOne) {
  const struct {
    void (*happen)(Relay&);
    bool is_of_rank0;
    const char* text;
  } rows[] = {{[](Relay& relay) {
                 relay.receive(kRank0, "", ping::Verdict{0, "good", ""}, 2);
               },
               true, "good"},
              {[](Relay& relay) { relay.lose(kRank0, 2); }, false, "rank 0 has ended"},
              {[](Relay& relay) { relay.pass(100); }, false, "rank 0 does not answer"}};
  for (const auto& row : rows) {
    Relay relay = relay_of_two();
    EXPECT_FALSE(relay.is_finished());
    row.happen(relay);
    ASSERT_TRUE(relay.is_finished()) << row.text;
    EXPECT_EQ(relay.is_of_rank0(), row.is_of_rank0) << row.text;
    EXPECT_EQ(relay.verdict().text, row.text);
    static_cast<void>(relay.take_outgoing(true, 100));
    relay.announce(relay.verdict());
    EXPECT_EQ(sent(relay, 100), "-> 2 Verdict!, -> 3 Verdict!");
  }
}

}  // namespace
