#include "init/ping/referee.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "init/ping/compare.hpp"
#include "init/ping/describe.hpp"

namespace init::ping {
namespace {

// Time for a rank to reach its relay after the last rank came. Longer than the rank itself waits for the relay.
constexpr double kPlaceSeconds = 8;
constexpr double kPrepareSeconds = 10;  // time to open the HCAs
constexpr double kRoundSeconds = 2;     // share of the budget for each round, without bandwidth
constexpr double kTroubleSeconds = 60;  // share of the budget for failures

// Returns true if all pairs of so many members meet.
bool is_complete(std::size_t members, const Rules& rules) {
  return rules.all_pairs || members < kSparseFrom;
}

// Returns the rounds of at most so many members: nodes with several ranks can have fewer members than ranks.
std::size_t most_rounds(std::size_t members, const Rules& rules) {
  if (is_complete(members, rules)) return rounds_of(members);
  return std::max(rounds_of(kSparseFrom - 1), sparse_rounds_of(members));
}

double seconds_of(std::size_t rounds, const Rules& rules) {
  const double round = kRoundSeconds + (rules.bandwidth ? kBandwidthSeconds : 0);
  return static_cast<double>(rounds) * round + kTroubleSeconds;
}

std::string named(const std::string& from, unsigned rank, const std::string& host) {
  return fmt::format("{} (rank {}, {})", from, rank, printable(host));
}

}  // namespace

double test_budget(std::size_t members, std::size_t rails, const Rules& rules) {
  return seconds_of(most_rounds(members, rules) * (rules.all_rails ? rails : 1), rules);
}

double longest_job(std::size_t rails, const Rules& rules) {
  return rules.meeting_seconds + kPrepareSeconds + test_budget(rules.size, rails, rules);
}

Referee::Referee(const Rules& rules, double now) : rules_(rules), seats_(rules_.size) {
  outcome_.size = rules_.size;
  end_ = now + rules_.meeting_seconds;
  progress_at_ = now + kProgressSeconds;
  deadline_ = std::min(end_, progress_at_);
}

double Referee::deadline() const {
  return std::min(deadline_, bundles_.due());
}

std::vector<Desk::Outgoing> Referee::take_outgoing(bool is_idle, double now) {
  bundles_.take(std::exchange(is_complete_, false), is_idle, now, outgoing_);
  return std::exchange(outgoing_, {});
}

std::vector<std::string> Referee::take_progress() {
  return std::exchange(progress_, {});
}

void Referee::send(std::size_t member, Message message) {
  const int connection = connections_[member];
  if (connection >= 0) return outgoing_.push_back({connection, std::move(message), false});
  const unsigned rank = outcome_.members[member].rank;
  const auto branch = branches_.find(group_of(rank));
  if (branch != branches_.end()) bundles_.add(branch->second.connection, rank, std::move(message));
}

// --- The meeting: every rank takes its seat.

bool Referee::has_seat(int connection) const {
  return rank_of_.contains(connection) || is_relay(connection);
}

std::string Referee::refusal_of(int connection, const Join& wanted) const {
  if (wanted.size != rules_.size)
    return fmt::format("it counts {} ranks and rank 0 counts {}", wanted.size, rules_.size);
  if (has_seat(connection)) return "this connection has a rank already";
  if (wanted.rank >= rules_.size) return fmt::format("its rank {} is not below {}", wanted.rank, rules_.size);
  if (stage_ != Stage::kMeeting) return "the test has begun";
  const Seat& seat = seats_[wanted.rank];
  if (seat.connection) return fmt::format("rank {} is here already, from {}", wanted.rank, printable(seat.join.host));
  return "";
}

void Referee::report_stranger(const std::string& stranger, const std::string& reason) {
  if (outcome_.strangers.size() >= Outcome::kMostStrangers) return;
  outcome_.strangers.push_back(fmt::format("refused {}: {}", stranger, reason));
  progress_.push_back(outcome_.strangers.back());
}

void Referee::refuse(int connection, const std::string& from, const Hello& hello, const std::string& reason) {
  // Rank and host are known only if the Hello has this version of the protocol.
  report_stranger(hello.protocol == kProtocol ? named(from, hello.rank, hello.host) : from, reason);
  outgoing_.push_back({connection, Refusal{reason}, true});
}

// Returns the longest time in seconds until the verdict.
double Referee::welcome_seconds(std::size_t rails, double now) const {
  return end_ - now + kPrepareSeconds + test_budget(rules_.size, rails, rules_);
}

void Referee::join(int connection, const std::string& from, Join wanted, double now) {
  if (std::string reason = refusal_of(connection, wanted); !reason.empty()) {
    report_stranger(named(from, wanted.rank, wanted.host), reason);
    outgoing_.push_back({connection, Welcome{false, std::move(reason), 0}, true});
    return;
  }
  const unsigned rank = wanted.rank;
  outgoing_.push_back({connection, Welcome{true, "", milliseconds(welcome_seconds(wanted.rails.size(), now))}, false});
  seats_[rank] = {connection, false, std::move(wanted)};
  rank_of_[connection] = rank;
  if (++seated_ == seats_.size()) places_end_ = now + kPlaceSeconds;
  place(rank, now);
}

void Referee::unseat(unsigned rank) {
  Seat& seat = seats_[rank];
  if (!seat.connection) return;
  rank_of_.erase(*seat.connection);
  seat.connection.reset();
  --seated_;
  settled_ -= std::exchange(seat.is_settled, false) ? 1 : 0;
}

// --- The members: one rank of each node.

// Ranks of a node that use the same ports share a member. A rank with ports of its own, such as one HCA per rank, tests
// itself.
void Referee::make_members() {
  std::map<std::string, std::vector<std::size_t>> of_node;
  member_of_.clear();
  for (Seat& seat : seats_) {
    std::vector<std::size_t>& there = of_node[seat.join.node];
    const auto same = std::ranges::find(there, seat.join.rails, [&](std::size_t member) -> const std::vector<Rail>& {
      return outcome_.members[member].rails;
    });
    if (same != there.end()) {
      outcome_.members[*same].waiting.push_back(seat.join.rank);
      member_of_.push_back(*same);
      continue;
    }
    there.push_back(outcome_.members.size());
    member_of_.push_back(outcome_.members.size());
    Member& member = outcome_.members.emplace_back();
    member.rank = seat.join.rank;
    member.host = std::move(seat.join.host);
    member.rails = std::move(seat.join.rails);
    member.unused = std::move(seat.join.unused);
    connections_.push_back(*seat.connection);
  }
  prepared_.resize(outcome_.members.size());
  unprepared_ = outcome_.members.size();
}

// Chooses the schedule, and makes a cell for each of its tests.
void Referee::make_pairs() {
  schedule_ = Schedule(outcome_.members.size(), is_complete(outcome_.members.size(), rules_), rules_.seed);
  rounds_ = schedule_.rounds() * (rules_.all_rails ? outcome_.rails : 1);
  std::vector<Pair> all;
  for (std::size_t round = 0; round < schedule_.rounds() && !schedule_.is_complete(); ++round) {
    for (const Pair& pair : schedule_.pairs(round))
      all.push_back(pair);
  }
  outcome_.add_pairs(all);
  outcome_.cells.resize(outcome_.count_pairs() * outcome_.rails, Layer::kUntested);
  if (rules_.bandwidth) outcome_.gbps.resize(outcome_.cells.size());
}

void Referee::begin(double now) {
  make_members();
  const std::vector<Member>& members = outcome_.members;
  outcome_.unequal = compare_members(members);
  outcome_.rails = static_cast<unsigned>(members.front().rails.size());
  if (!outcome_.unequal.empty()) return finish(now);
  make_pairs();
  if (outcome_.cells.empty()) return finish(now);
  rails_.assign(members.size(), std::vector<RailState>(outcome_.rails));
  const double budget = seconds_of(rounds_, rules_);
  progress_.push_back(fmt::format("{} on {}, {} each: {}, at most {:.0f} s", count_of(rules_.size, "rank"),
                                  count_of(members.size(), "node"), count_of(outcome_.rails, "rail"),
                                  count_of(rounds_, "round"), kPrepareSeconds + budget));
  stage_ = Stage::kPreparing;
  prepare_end_ = now + kPrepareSeconds;
  deadline_ = now + kCheckSeconds;
  for (auto& [group, branch] : branches_)
    branch.received_at = now;
  for (std::size_t member = 0; member < members.size(); ++member)
    send(member, Prepare{rules_.bytes});
  is_complete_ = true;
}

void Referee::take_prepared(std::size_t member, Prepared prepared, double now) {
  // After the time for it has passed, the member is dropped already.
  if (stage_ != Stage::kPreparing || prepared_[member]) return;
  if (prepared.rails.size() == outcome_.rails) {
    outcome_.members[member].rails = std::move(prepared.rails);
    outcome_.members[member].problem = std::move(prepared.problem);
  } else {
    drop(member, "its rails changed during the test");
  }
  set_prepared(member);
  go_on(now);
}

void Referee::set_prepared(std::size_t member) {
  if (prepared_[member]) return;
  prepared_[member] = true;
  --unprepared_;
}

// Begins the next step if all members have made this one.
void Referee::go_on(double now) {
  if (stage_ != Stage::kPreparing) return end_stage_if_done(now);
  if (unprepared_ > 0) return;
  stage_ = Stage::kRounds;
  started_ = now;
  end_ = now + seconds_of(rounds_, rules_);
  progress_at_ = now + kProgressSeconds;
  next_round(now);
}

// The member cannot go on: it has ended, is silent, or breaks the protocol.
void Referee::drop(std::size_t member, std::string detail) {
  if (!is_usable(member)) return;
  outcome_.members[member].problem = {Layer::kRank, std::move(detail)};
}

// Drops the member that tests for a rank whose connection has ended. with: the rank whose end is the cause, if it is
// another one.
void Referee::lose_rank(unsigned rank, const std::string& detail, std::optional<unsigned> with) {
  const std::size_t member = member_of_[rank];
  if (!is_usable(member)) return;
  drop(member, detail);
  if (with != outcome_.members[member].rank) outcome_.members[member].lost_with = with;
  if (stage_ == Stage::kPreparing) return set_prepared(member);
  if (const auto at = meeting_of_[member]) end_meeting(meetings_[*at]);
}

// --- Events.

void Referee::receive(int connection, const std::string& from, Message message, double now) {
  if (auto* wanted = std::get_if<Join>(&message)) return join(connection, from, std::move(*wanted), now);
  if (is_finished()) return;
  if (Branch* const branch = branch_of(connection)) {
    branch->received_at = now;
    if (const auto* bundle = std::get_if<Bundle>(&message)) return receive_bundle(*branch, *bundle, now);
  }
  if (std::holds_alternative<StayDirect>(message)) restore_direct(connection, now);
  const auto found = rank_of_.find(connection);
  if (found != rank_of_.end()) take_of_rank(found->second, std::move(message), now);
}

void Referee::take_of_rank(unsigned rank, Message message, double now) {
  if (stage_ == Stage::kMeeting) return answer_place(rank, message, now);
  const std::size_t member = member_of_[rank];
  // A rank may have left its relay too late.
  if (outcome_.members[member].rank != rank || std::holds_alternative<StayDirect>(message)) return;
  if (auto* prepared = std::get_if<Prepared>(&message)) return take_prepared(member, std::move(*prepared), now);
  if (stage_ != Stage::kPreparing) return take_of_round(member, std::move(message), now);
  drop(member, "it sent a message that rank 0 does not expect");
  set_prepared(member);
  go_on(now);
}

void Referee::lose(int connection, double now) {
  former_.erase(connection);
  if (Branch* const branch = branch_of(connection)) return lose_branch(*branch, "ended", now);
  const auto found = rank_of_.find(connection);
  if (found != rank_of_.end()) lose_seat(found->second, now);
}

void Referee::lose_seat(unsigned rank, double now) {
  unseat(rank);  // the rank may come again after a restart of its container
  if (stage_ == Stage::kMeeting || is_finished()) return;
  lose_rank(rank,
            stage_ == Stage::kPreparing ? fmt::format("rank {} ended before the first round", rank)
                                        : fmt::format("rank {} ended in round {} of {}", rank, next_, rounds_),
            std::nullopt);
  go_on(now);
}

void Referee::report_progress(double now) {
  if (now < progress_at_) return;
  progress_at_ = now + kProgressSeconds;
  if (stage_ == Stage::kRounds || stage_ == Stage::kCrossed)
    progress_.push_back(fmt::format("round {} of {}", next_, rounds_));
  if (stage_ != Stage::kMeeting) return;
  std::vector<unsigned> missing;
  for (unsigned rank = 0; rank < seats_.size(); ++rank) {
    if (!seats_[rank].connection) missing.push_back(rank);
  }
  if (missing.empty())
    return progress_.push_back("waiting for the relays of " + count_of(seats_.size() - settled_, "rank"));
  progress_.push_back(fmt::format("waiting for {}: {} of {} ranks are here",
                                  fmt::format("{} {}", missing.size() == 1 ? "rank" : "ranks", name_ranks(missing)),
                                  seated_, seats_.size()));
}

void Referee::pass(double now) {
  if (is_finished()) return;
  report_progress(now);
  if (stage_ == Stage::kMeeting) {
    const bool are_here = seated_ == seats_.size();
    const double end = are_here ? std::min(end_, places_end_) : end_;
    deadline_ = std::min(end, progress_at_);
    if (now < end) return;
    if (are_here) return begin(now);
    for (unsigned rank = 0; rank < seats_.size(); ++rank) {
      if (!seats_[rank].connection) outcome_.absent.push_back(rank);
    }
    return finish(now);
  }
  pass_branches(now);
  if (stage_ == Stage::kPreparing) {
    deadline_ = std::min(prepare_end_, now + kCheckSeconds);
    if (now < prepare_end_) return;
    for (std::size_t member = 0; member < prepared_.size(); ++member) {
      if (!prepared_[member]) drop(member, fmt::format("it does not answer for {:.0f} s", kPrepareSeconds));
    }
    unprepared_ = 0;
    return go_on(now);
  }
  if (is_finished()) return;
  if (now >= end_) {
    outcome_.out_of_time = stage_ != Stage::kCrossed;
    return finish(now);
  }
  pass_meetings(now);
}

void Referee::announce(const Verdict& verdict) {
  bundles_.take(true, true, 0, outgoing_);
  for (const auto& [group, branch] : branches_) {
    if (!branch.is_refused) outgoing_.push_back({branch.connection, verdict, true});
  }
  for (const Seat& seat : seats_) {
    const bool is_direct = seat.connection && *seat.connection >= 0 && !is_relay(*seat.connection);
    if (is_direct) outgoing_.push_back({*seat.connection, verdict, true});
  }
}

}  // namespace init::ping
