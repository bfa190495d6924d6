// Processes that take part in a job over TCP on this machine, some of them as relays.
#include "init/ping/take_part.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "base/timing.hpp"
#include "init/ping/causes.hpp"
#include "init/ping/meeting_point.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/relay.hpp"

namespace {

using namespace init::ping;

constexpr double kPartWait = 120;  // seconds, for a busy machine
constexpr unsigned kSize = 12;

// Counts the ranks that report through relays, and can send ranks to another program in place of their relay.
class Observed : public Referee {
 public:
  using Referee::Referee;
  void receive(int connection, const std::string& from, Message message, double now) override {
    const auto* const bundle = std::get_if<Bundle>(&message);
    for (const Carried& carried : bundle == nullptr ? std::vector<Carried>() : bundle->carried)
      relayed_ += std::holds_alternative<Prepared>(*decode(carried.frame)) ? 1 : 0;
    const auto* const results = std::get_if<Results>(&message);
    if (results != nullptr && results->round == last_round) ::_exit(kExit);
    Referee::receive(connection, from, std::move(message), now);
  }
  std::vector<Outgoing> take_outgoing(bool is_idle, double now) override {
    std::vector<Outgoing> outgoing = Referee::take_outgoing(is_idle, now);
    for (Outgoing& one : outgoing) {
      auto* const way = std::get_if<MoveTo>(&one.message);
      if (way != nullptr && impostor != 0) way->port = impostor;
    }
    return outgoing;
  }
  unsigned relayed() const { return relayed_; }

  static constexpr int kExit = 9;
  std::uint32_t last_round = 0;  // round in which the process of rank 0 ends; 0: none
  std::uint16_t impostor = 0;    // port in place of that of each relay; 0: none

 private:
  unsigned relayed_ = 0;
};

// Actions of one rank beside its answers.
using Deed = std::function<void(const Message&)>;

Handler answer(const Join& join, const Deed& deed) {
  return [=](Channel& channel, const Message& message) -> base::Result<void> {
    deed(message);
    const double deadline = base::clock_seconds() + kPartWait;
    static std::size_t tests = 0;
    static std::uint32_t number = 0;
    if (std::holds_alternative<Prepare>(message)) return channel.send(Prepared{{}, join.rails}, deadline);
    if (const auto* round = std::get_if<Round>(&message)) {
      tests = round->rails.size();
      number = round->number;
      return channel.send(Contacts{number, std::vector<Contact>(tests)}, deadline);
    }
    if (std::holds_alternative<Contacts>(message))
      return channel.send(Connected{number, std::vector<Failure>(tests)}, deadline);
    return channel.send(Results{number, std::vector<TestResult>(tests)}, deadline);
  };
}

base::Result<MeetingPoint> listen_with(const char* token) {
  SocketAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  ipv4.sin_family = AF_INET;
  ::inet_pton(AF_INET, "127.0.0.1", &ipv4.sin_addr);
  address.length = sizeof ipv4;
  return MeetingPoint::listen(address, kSize, token);
}

std::uint16_t port_of(const MeetingPoint& point) {
  const SocketAddress at = point.address();
  return ntohs(reinterpret_cast<const sockaddr_in&>(at.storage).sin_port);
}

// Runs a job with groups of four ranks, and returns the referee. deeds: by rank. token: that of rank 1. codes: receives
// the exit codes: that of the verdict, 7 if a relay has ended, 8 after another error. impostor: port that all ranks
// take for that of their relay; 0: none. pipe: receives the exit codes, and the process ends in round 3; -1: none.
struct Job {
  explicit Job(const std::map<unsigned, Deed>& deeds = {}, const char* token = "job 7",
               double meeting_seconds = kPartWait, std::uint16_t impostor = 0, int pipe = -1)
      : referee(rules(meeting_seconds), base::clock_seconds()) {
    referee.impostor = impostor;
    if (pipe >= 0) referee.last_round = 3;
    auto point = listen_with("job 7");
    EXPECT_TRUE(point.has_value());
    if (!point) return;
    const std::uint16_t port = port_of(*point);
    std::vector<pid_t> ranks;
    for (unsigned rank = 0; rank < kSize; ++rank) {
      ranks.push_back(::fork());
      if (ranks.back() != 0) continue;
      point->leave();
      be_rank(rank, port, token, deeds, pipe);
    }
    point->run(referee, init::Log(init::LogLevel::kQuiet), [] { return ping::Verdict{3, "done", ""}; });
    for (const pid_t rank : ranks) {
      int status = 0;
      ::waitpid(rank, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
  }

  static Rules rules(double meeting_seconds) {
    Rules rules;
    rules.size = kSize;
    rules.meeting_seconds = meeting_seconds;
    rules.fan_out = rules.tree_from = 4;
    return rules;
  }

  [[noreturn]] static void be_rank(unsigned rank, std::uint16_t port, const char* token,
                                   const std::map<unsigned, Deed>& deeds, int pipe) {
    Part part{"127.0.0.1",
              port,
              rank == 1 ? token : "job 7",
              {rank, kSize, "node" + std::to_string(rank), "host", std::vector<Rail>(2), {}},
              kPartWait,
              kPartWait,
              {}};
    const auto deed = deeds.find(rank);
    part.make_handler = [&](double) {
      return answer(part.join, deed == deeds.end() ? [](const Message&) {} : deed->second);
    };
    const auto verdict = take_part(part, init::Log(init::LogLevel::kQuiet));
    const bool is_lost =
        !verdict && verdict.error().message.find("through which this rank reports") != std::string::npos;
    const int code = verdict ? verdict->code : is_lost ? 7 : 8;
    const char digit = static_cast<char>('0' + code);
    static_cast<void>(::write(pipe, &digit, 1) == 1);
    ::_exit(code);
  }

  Observed referee;
  std::vector<int> codes;
};

TEST(TakePart, RanksOfGroupsReportThroughRelays) {
  const Job job;
  EXPECT_EQ(job.codes, std::vector<int>(kSize, 3)) << "the code of the verdict";
  EXPECT_EQ(job.referee.relayed(), 8U);
  EXPECT_TRUE(find_causes(job.referee.outcome()).empty());
  EXPECT_EQ(job.referee.outcome().cells, std::vector<Layer>(kSize * (kSize - 1), Layer::kGood));
}

// The child that tests is killed with its parent, the relay.
TEST(TakePart, RelayThatIsKilledIsNamedAndItsRanksEnd) {
  const struct {
    Message at;  // the relay is killed when its own test gets such a message
    const char* when;
  } rows[] = {{Prepare{}, "before the first round"},
              {Round{}, "in round 1 of 11"},
              {Contacts{}, "in round 1 of 11"},
              {Go{}, "in round 1 of 11"}};
  for (const auto& row : rows) {
    const Deed kill_relay = [&](const Message& message) {
      if (message.index() == row.at.index()) ::kill(::getppid(), SIGKILL);
    };
    const Job job({{8, kill_relay}});
    EXPECT_EQ(job.codes[8], -1);
    // A rank that writes to the relay at the moment of its end meets an error of the connection in place of its end.
    for (const unsigned rank : {9U, 10U, 11U})
      EXPECT_TRUE(job.codes[rank] == 7 || job.codes[rank] == 8) << rank << ": " << job.codes[rank];
    for (unsigned rank = 0; rank < 8; ++rank)
      EXPECT_EQ(job.codes[rank], 3) << rank;
    const std::vector<Cause> causes = find_causes(job.referee.outcome());
    ASSERT_EQ(causes.size(), 1U);
    EXPECT_EQ(causes.front().rank, 8U);
    EXPECT_TRUE(causes.front().message.starts_with(std::string("rank 8 (host): rank: rank 8 ended ") + row.when))
        << causes.front().message;
  }
}

// Rank 0 ends in a process of its own. Each rank writes its exit code into a pipe, which ends with the last rank.
TEST(TakePart, AllRanksEndIfRank0Ends) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t rank0 = ::fork();
  if (rank0 == 0) {
    ::close(ends[0]);
    const Job job({}, "job 7", kPartWait, 0, ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string codes;
  for (char code = 0; ::read(ends[0], &code, 1) == 1;)
    codes += code;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(rank0, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), Observed::kExit);
  std::ranges::sort(codes);
  EXPECT_EQ(codes, "111111888888") << "the verdict of two relays for three ranks each, and an error of all other ranks";
}

TEST(TakePart, RankBehindRelayThatIsKilledIsNamed) {
  const Deed end = [](const Message& message) {
    const auto* const round = std::get_if<Round>(&message);
    if (round != nullptr && round->number == 2) ::raise(SIGKILL);
  };
  const Job job({{6, end}});
  EXPECT_EQ(std::ranges::count(job.codes, 3), kSize - 1);
  const std::vector<Cause> causes = find_causes(job.referee.outcome());
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes.front().rank, 6U);
}

TEST(TakePart, RankWithAnotherTokenIsRefusedByName) {
  const Job job({}, "job 8", 5);
  EXPECT_EQ(job.codes[1], 8);
  const Outcome& outcome = job.referee.outcome();
  EXPECT_NE(std::ranges::find(outcome.absent, 1U), outcome.absent.end());
  ASSERT_EQ(outcome.strangers.size(), 1U);
  EXPECT_TRUE(outcome.strangers.front().ends_with("(rank 1, host): it has the token of another job"))
      << outcome.strangers.front();
}

// A program that does not know the token listens where the ranks expect their relay.
TEST(TakePart, RankDoesNotReportThroughRelayWithAnotherToken) {
  auto impostor = listen_with("job 8");
  ASSERT_TRUE(impostor.has_value());
  const std::uint16_t port = port_of(*impostor);
  const pid_t program = ::fork();
  if (program == 0) {
    Relay relay(-1, base::clock_seconds(), base::clock_seconds() + kPartWait);
    impostor->run(relay, init::Log(init::LogLevel::kQuiet), [&] { return relay.verdict(); });
    ::_exit(0);
  }
  impostor->leave();
  const Job job({}, "job 7", kPartWait, port);
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  EXPECT_EQ(job.codes, std::vector<int>(kSize, 3));
  EXPECT_EQ(job.referee.relayed(), 2U) << "the ranks 4 and 8, in the processes of the relays";
  EXPECT_TRUE(find_causes(job.referee.outcome()).empty());
}

}  // namespace
