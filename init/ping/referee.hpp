// Rank 0's decisions: it admits ranks, pairs them, limits each wait, and collects the results. Pure: messages and the
// time come in, messages go out.
//
// The referee ends by itself: at the latest meeting_seconds after its start, if a rank does not come, otherwise
// test_budget() after the last rank came, whatever the ranks do. pass() must be called at deadline().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "init/ping/messages.hpp"
#include "init/ping/outcome.hpp"
#include "init/ping/schedule.hpp"

namespace init::ping {

struct Rules {
  unsigned size = 1;
  double meeting_seconds = 30;  // how long the ranks wait for each other
  bool all_rails = false;       // true: also test two different rails
  std::uint32_t bytes = 64 << 10;
  bool bandwidth = false;
};

inline constexpr double kBandwidthSeconds = 1;  // time to measure each pair, with Rules::bandwidth
inline constexpr double kProgressSeconds = 5;   // time between two lines about the progress

// Returns whole milliseconds for a message.
constexpr std::uint32_t milliseconds(double seconds) {
  return static_cast<std::uint32_t>(seconds * 1000);
}

// Returns the longest time of the tests in seconds, from the arrival of the last rank to the end.
double test_budget(std::size_t members, std::size_t rails, const Rules& rules);
// Returns the longest time in seconds from the start of the meeting to the verdict.
double longest_job(std::size_t rails, const Rules& rules);

class Referee {
 public:
  // now: seconds of one clock, in all functions.
  Referee(const Rules& rules, double now);

  struct Outgoing {
    int connection = 0;
    Message message;
    bool is_last = false;  // close the connection after it
  };

  // connection: a number that names one connection for its lifetime. from: its address, for messages. Call it only for
  // messages of a peer that has proven the token.
  void receive(int connection, const std::string& from, Message message, double now);
  // Reports that a peer has not proven the token, and sends it the reason.
  void refuse(int connection, const std::string& from, const Hello& hello, const std::string& reason);
  // The connection has ended, or sent bytes that are no message.
  void lose(int connection, double now);
  void pass(double now);
  double deadline() const { return deadline_; }
  bool is_finished() const { return stage_ == Stage::kFinished; }
  // Returns true if a rank has joined with this connection.
  bool has_seat(int connection) const;
  // Sends the verdict to every rank that is here. Call it once, after is_finished().
  void announce(const Verdict& verdict);

  std::vector<Outgoing> take_outgoing();
  // Returns lines about the progress since the last call.
  std::vector<std::string> take_progress();
  const Outcome& outcome() const { return outcome_; }

 private:
  enum class Stage { kMeeting, kPreparing, kRounds, kProbe, kRetest, kResume, kCrossed, kFinished };
  enum class Step { kContacts, kConnecting, kTesting, kDone };
  struct Seat {
    std::optional<int> connection;
    Join join = {};
  };
  // The messages of one member for the current round.
  struct Half {
    std::size_t member = 0;
    std::optional<std::vector<Contact>> contacts = {};
    std::optional<std::vector<Failure>> connected = {};
    std::optional<std::vector<TestResult>> results = {};
  };
  struct Meeting {
    Half halves[2];
    std::vector<RailPair> rails;  // `own` is the rail of the pair's first member
    Step step = Step::kContacts;
    double deadline = 0;
  };
  struct RailState {
    unsigned failed = 0;
    bool has_worked = false;
    bool is_suspended() const { return failed >= 2 && !has_worked; }
  };

  void join(int connection, const std::string& from, Join wanted, double now);
  std::string refusal_of(int connection, const Join& wanted) const;
  void report_stranger(const std::string& stranger, const std::string& reason);
  void send(std::size_t member, Message message);
  bool is_usable(std::size_t member) const { return !outcome_.members[member].problem.failed(); }
  void drop(std::size_t member, std::string detail);

  void begin(double now);
  void make_members();
  void take_prepared(std::size_t member, Prepared prepared, double now);
  void set_prepared(std::size_t member, double now);
  void begin_rounds(double now);
  bool start_round(std::size_t end, double now);
  void next_round(double now);
  void next_crossed_round(double now);
  void begin_probe(double now);
  void begin_retest(double now);
  void begin_resume(double now);
  void start_meetings(const std::vector<Pair>& pairs, std::uint32_t bytes, double now);
  std::vector<RailPair> rails_of(Pair pair) const;
  bool is_testable(std::size_t member, unsigned rail) const;
  bool is_open(Pair pair, unsigned own, unsigned peer) const;
  void finish(double now);

  void take_of_round(std::size_t member, const Message& message, double now);
  bool take_half(Meeting& meeting, Half& half, const Message& message) const;
  void advance(Meeting& meeting, double now);
  void start_test(const Meeting& meeting);
  void end_meeting(Meeting& meeting);
  void record(const Meeting& meeting);
  static TestResult result_of(const Half& half, std::size_t at);
  void record_test(const Meeting& meeting, std::size_t at);
  void record_probe(const FailedPair& test);
  void end_stage_if_done(double now);
  void pass_meetings(double now);
  void report_progress(double now);

  Rules rules_;
  Stage stage_ = Stage::kMeeting;
  double deadline_ = 0;
  double end_ = 0;  // the end of the meeting, later the end of the tests
  double prepare_end_ = 0;
  double started_ = 0;       // the start of the first round
  double progress_at_ = 0;   // time of the next progress line
  std::vector<Seat> seats_;  // the seat of each rank
  std::size_t seated_ = 0;
  Outcome outcome_;
  std::vector<int> connections_;                        // the connection of each member
  std::map<int, std::size_t> member_of_;                // the member of each connection
  std::vector<bool> prepared_;                          // for each member: whether it has sent Prepared
  std::vector<std::vector<RailState>> rails_;           // the states of each member's rails
  std::vector<Meeting> meetings_;                       // the meetings of the current round
  std::vector<std::optional<std::size_t>> meeting_of_;  // for each member: the index of its meeting in meetings_
  std::size_t open_meetings_ = 0;
  std::uint32_t number_ = 0;  // number of the current round, counted over all passes
  std::size_t next_ = 0;      // round of the schedule that comes next, over all passes
  std::size_t rounds_ = 0;    // rounds of the schedule, counted over all passes
  unsigned shift_ = 0;        // rail R of the first member meets rail R + shift_ of the second
  std::vector<Outgoing> outgoing_;
  std::vector<std::string> progress_;
};

}  // namespace init::ping
