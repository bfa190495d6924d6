// Rank 0's decisions: it admits ranks, pairs them, limits each wait, and collects the results. Pure.
//
// The referee ends by itself: at the latest meeting_seconds after its start, if a rank does not come, otherwise
// test_budget() after the last rank came, whatever the ranks do.
//
// With many ranks, those of a group report through a relay: one of them, which has the lowest rank. The ranks of the
// first group, and a rank that does not reach its relay, report directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "init/ping/bundles.hpp"
#include "init/ping/desk.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/outcome.hpp"
#include "init/ping/schedule.hpp"

namespace init::ping {

inline constexpr unsigned kFanOut = 64;          // ranks of a group
inline constexpr unsigned kTreeFrom = 512;       // ranks from which groups report through relays
inline constexpr std::size_t kSparseFrom = 128;  // members from which not all pairs meet

struct Rules {
  unsigned size = 1;
  double meeting_seconds = 30;  // how long the ranks wait for each other
  bool all_rails = false;       // true: also test two different rails
  std::uint32_t bytes = 64 << 10;
  bool bandwidth = false;
  bool all_pairs = false;  // true: all pairs meet, however many members there are
  std::uint32_t seed = 0;  // selects a sparse schedule
  unsigned fan_out = kFanOut;
  unsigned tree_from = kTreeFrom;
};

inline constexpr double kBandwidthSeconds = 1;  // time to measure each pair, with Rules::bandwidth
inline constexpr double kProgressSeconds = 5;   // time between two lines about the progress

// Returns whole milliseconds for a message.
constexpr std::uint32_t milliseconds(double seconds) {
  return static_cast<std::uint32_t>(seconds * 1000);
}

// Returns the longest time of the tests in seconds, from the arrival of the last rank to the end. members: at most so
// many.
double test_budget(std::size_t members, std::size_t rails, const Rules& rules);
// Returns the longest time in seconds from the start of the meeting to the verdict.
double longest_job(std::size_t rails, const Rules& rules);

class Referee : public Desk {
 public:
  Referee(const Rules& rules, double now);

  void receive(int connection, const std::string& from, Message message, double now) override;
  void refuse(int connection, const std::string& from, const Hello& hello, const std::string& reason) override;
  void lose(int connection, double now) override;
  void pass(double now) override;
  double deadline() const override;
  bool is_finished() const override { return stage_ == Stage::kFinished; }
  bool has_seat(int connection) const override;
  void announce(const Verdict& verdict) override;
  std::vector<Outgoing> take_outgoing(bool is_idle, double now) override;
  std::vector<std::string> take_progress() override;
  const Outcome& outcome() const { return outcome_; }

 private:
  static constexpr double kCheckSeconds = 0.25;  // time between two checks of the deadlines
  enum class Stage { kMeeting, kPreparing, kRounds, kProbe, kRetest, kResume, kCrossed, kFinished };
  enum class Step { kContacts, kConnecting, kTesting, kDone };
  struct Seat {
    std::optional<int> connection;  // negative: through the relay of its group
    bool is_settled = false;        // it keeps this connection
    Join join = {};
  };
  // The relay of a group.
  struct Branch {
    int connection = 0;
    bool is_refused = false;  // the rank is no relay, and its group reports directly
    MoveTo way = {};          // an empty host: it does not listen yet
    double received_at = 0;   // time of its last message
  };
  // The messages of one member for the current round.
  struct Half {
    std::size_t member = 0;
    bool has_contacts = false;
    bool has_connected = false;
    bool has_results = false;
    std::vector<Failure> failures = {};  // for each test, before it began; empty: none
    std::vector<TestResult> results = {};
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
  double welcome_seconds(std::size_t rails, double now) const;
  void send(std::size_t member, Message message);
  bool is_usable(std::size_t member) const { return !outcome_.members[member].problem.failed(); }
  void drop(std::size_t member, std::string detail);

  // The tree of relays.
  static int through_relay(unsigned rank) { return -1 - static_cast<int>(rank); }
  unsigned group_of(unsigned rank) const { return rank / rules_.fan_out; }
  Branch* branch_of(int connection);
  bool is_relay(int connection) const;
  void place(unsigned rank, double now);
  void settle(unsigned rank, double now);
  void answer_place(unsigned rank, const Message& message, double now);
  void open_branch(Branch& branch, unsigned rank, const RelayAt& at);
  void attach(Branch& branch, unsigned rank, double now);
  void restore_direct(int connection, double now);
  void receive_bundle(Branch& branch, const Bundle& bundle, double now);
  void take_of_rank(unsigned rank, Message message, double now);
  void unseat(unsigned rank);
  void lose_seat(unsigned rank, double now);
  void lose_branch(Branch& branch, const std::string& why, double now);
  void pass_branches(double now);
  template <typename Visit>
  void for_group_of(unsigned rank, Visit visit);

  void begin(double now);
  void make_members();
  void make_pairs();
  void take_prepared(std::size_t member, Prepared prepared, double now);
  void set_prepared(std::size_t member);
  void lose_rank(unsigned rank, const std::string& detail, std::optional<unsigned> with);
  void go_on(double now);
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

  void take_of_round(std::size_t member, Message message, double now);
  bool take_half(Meeting& meeting, int side, Message& message);
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
  double end_ = 0;         // the end of the meeting, later the end of the tests
  double places_end_ = 0;  // all ranks are here: from then on, a rank without an answer of its relay reports directly
  double prepare_end_ = 0;
  double started_ = 0;       // the start of the first round
  double progress_at_ = 0;   // time of the next progress line
  std::vector<Seat> seats_;  // the seat of each rank
  std::size_t seated_ = 0;
  std::size_t settled_ = 0;
  std::map<int, unsigned> rank_of_;      // the rank of each connection, but for those through relays
  std::map<int, unsigned> former_;       // the rank of each connection that a relay replaced
  std::map<unsigned, Branch> branches_;  // by group
  Bundles bundles_;
  bool is_complete_ = false;  // no message is expected that would follow those of bundles_ at once
  Outcome outcome_;
  Schedule schedule_{0, true, 0};
  std::vector<int> connections_;        // the connection of each member
  std::vector<std::size_t> member_of_;  // the member of each rank
  std::vector<bool> prepared_;          // for each member: whether it has sent Prepared
  std::size_t unprepared_ = 0;
  std::vector<std::vector<RailState>> rails_;           // the states of each member's rails
  std::vector<Meeting> meetings_;                       // the meetings of the current round
  std::vector<std::optional<std::size_t>> meeting_of_;  // for each member: the index of its meeting in meetings_
  std::size_t open_meetings_ = 0;
  std::size_t contacts_left_ = 0;   // halves of open meetings without contacts
  std::size_t connected_left_ = 0;  // halves of open meetings that are not connected
  std::uint32_t number_ = 0;        // number of the current round, counted over all passes
  std::size_t next_ = 0;            // round of the schedule that comes next, over all passes
  std::size_t rounds_ = 0;          // rounds of the schedule, counted over all passes
  unsigned shift_ = 0;              // rail R of the first member meets rail R + shift_ of the second
  std::vector<Outgoing> outgoing_;
  std::vector<std::string> progress_;
};

}  // namespace init::ping
