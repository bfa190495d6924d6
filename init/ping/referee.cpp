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

constexpr double kPrepareSeconds = 10;  // time to open the HCAs
constexpr double kRoundSeconds = 2;     // share of the budget for each round, without bandwidth
constexpr double kTroubleSeconds = 60;  // share of the budget for failures

std::size_t rounds_in_all(std::size_t members, std::size_t rails, const Rules& rules) {
  return rounds_of(members) * (rules.all_rails ? rails : 1);
}

std::string named(const std::string& from, unsigned rank, const std::string& host) {
  return fmt::format("{} (rank {}, {})", from, rank, printable(host));
}

}  // namespace

double test_budget(std::size_t members, std::size_t rails, const Rules& rules) {
  const double round = kRoundSeconds + (rules.bandwidth ? kBandwidthSeconds : 0);
  return static_cast<double>(rounds_in_all(members, rails, rules)) * round + kTroubleSeconds;
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

std::vector<Referee::Outgoing> Referee::take_outgoing() {
  return std::exchange(outgoing_, {});
}

std::vector<std::string> Referee::take_progress() {
  return std::exchange(progress_, {});
}

void Referee::send(std::size_t member, Message message) {
  outgoing_.push_back({connections_[member], std::move(message), false});
}

// --- The meeting: every rank takes its seat.

bool Referee::has_seat(int connection) const {
  return std::ranges::find(seats_, connection, &Seat::connection) != seats_.end();
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

void Referee::join(int connection, const std::string& from, Join wanted, double now) {
  if (std::string reason = refusal_of(connection, wanted); !reason.empty()) {
    report_stranger(named(from, wanted.rank, wanted.host), reason);
    outgoing_.push_back({connection, Welcome{false, std::move(reason), 0}, true});
    return;
  }
  const std::size_t rank = wanted.rank;
  const double budget = test_budget(rules_.size, wanted.rails.size(), rules_);
  outgoing_.push_back({connection, Welcome{true, "", milliseconds(end_ - now + kPrepareSeconds + budget)}, false});
  seats_[rank] = {connection, std::move(wanted)};
  if (++seated_ == seats_.size()) begin(now);
}

// --- The members: one rank of each node.

// Ranks of a node that use the same ports share a member. A rank with ports of its own, such as one HCA per rank, tests
// itself.
void Referee::make_members() {
  std::map<std::string, std::vector<std::size_t>> of_node;
  for (Seat& seat : seats_) {
    std::vector<std::size_t>& there = of_node[seat.join.node];
    const auto same = std::ranges::find(there, seat.join.rails, [&](std::size_t member) -> const std::vector<Rail>& {
      return outcome_.members[member].rails;
    });
    if (same != there.end()) {
      outcome_.members[*same].waiting.push_back(seat.join.rank);
      continue;
    }
    there.push_back(outcome_.members.size());
    outcome_.members.push_back(
        {seat.join.rank, std::move(seat.join.host), {}, std::move(seat.join.rails), std::move(seat.join.unused), {}});
    member_of_[*seat.connection] = connections_.size();
    connections_.push_back(*seat.connection);
  }
  prepared_.resize(outcome_.members.size());
}

void Referee::begin(double now) {
  make_members();
  const std::vector<Member>& members = outcome_.members;
  outcome_.unequal = compare_members(members);
  outcome_.rails = static_cast<unsigned>(members.front().rails.size());
  const std::size_t pairs = members.size() * (members.size() - 1) / 2;
  if (!outcome_.unequal.empty()) return finish(now);
  outcome_.cells.resize(pairs * outcome_.rails, Layer::kUntested);
  if (outcome_.rails == 0 || pairs == 0) return finish(now);
  if (rules_.bandwidth) outcome_.gbps.resize(outcome_.cells.size());
  rails_.assign(members.size(), std::vector<RailState>(outcome_.rails));
  rounds_ = rounds_in_all(members.size(), outcome_.rails, rules_);
  const double budget = test_budget(members.size(), outcome_.rails, rules_);
  progress_.push_back(fmt::format("{} on {}, {} each: {}, at most {:.0f} s", count_of(rules_.size, "rank"),
                                  count_of(members.size(), "node"), count_of(outcome_.rails, "rail"),
                                  count_of(rounds_, "round"), kPrepareSeconds + budget));
  stage_ = Stage::kPreparing;
  prepare_end_ = deadline_ = now + kPrepareSeconds;
  for (std::size_t member = 0; member < members.size(); ++member)
    send(member, Prepare{rules_.bytes});
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
  set_prepared(member, now);
}

void Referee::set_prepared(std::size_t member, double now) {
  prepared_[member] = true;
  if (std::ranges::find(prepared_, false) == prepared_.end()) begin_rounds(now);
}

// The member cannot go on: it has ended, is silent, or breaks the protocol.
void Referee::drop(std::size_t member, std::string detail) {
  if (!is_usable(member)) return;
  outcome_.members[member].problem = {Layer::kRank, std::move(detail)};
}

// --- Events.

void Referee::receive(int connection, const std::string& from, Message message, double now) {
  if (auto* wanted = std::get_if<Join>(&message)) return join(connection, from, std::move(*wanted), now);
  const auto found = member_of_.find(connection);
  if (found == member_of_.end() || is_finished()) return;
  if (auto* prepared = std::get_if<Prepared>(&message)) return take_prepared(found->second, std::move(*prepared), now);
  if (stage_ == Stage::kPreparing) {
    drop(found->second, "it sent a message that rank 0 does not expect");
    return set_prepared(found->second, now);
  }
  take_of_round(found->second, message, now);
}

void Referee::lose(int connection, double now) {
  const auto seat = std::ranges::find(seats_, connection, &Seat::connection);
  if (seat == seats_.end()) return;
  seat->connection.reset();
  if (stage_ == Stage::kMeeting) {
    --seated_;  // the rank may come again after a restart of its container
    return;
  }
  if (is_finished()) return;
  const auto rank = static_cast<unsigned>(seat - seats_.begin());
  for (std::size_t member = 0; member < connections_.size(); ++member) {
    const Member& one = outcome_.members[member];
    if (one.rank != rank && std::ranges::find(one.waiting, rank) == one.waiting.end()) continue;
    drop(member, stage_ == Stage::kPreparing ? fmt::format("rank {} ended before the first round", rank)
                                             : fmt::format("rank {} ended in round {} of {}", rank, next_, rounds_));
    if (stage_ == Stage::kPreparing) return set_prepared(member, now);
    if (const auto at = meeting_of_[member]) end_meeting(meetings_[*at]);
    return end_stage_if_done(now);
  }
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
  progress_.push_back(fmt::format("waiting for {}: {} of {} ranks are here",
                                  fmt::format("{} {}", missing.size() == 1 ? "rank" : "ranks", name_ranks(missing)),
                                  seated_, seats_.size()));
}

void Referee::pass(double now) {
  if (is_finished()) return;
  report_progress(now);
  if (stage_ == Stage::kMeeting) {
    deadline_ = std::min(end_, progress_at_);
    if (now < end_) return;
    for (unsigned rank = 0; rank < seats_.size(); ++rank) {
      if (!seats_[rank].connection) outcome_.absent.push_back(rank);
    }
    return finish(now);
  }
  if (stage_ == Stage::kPreparing) {
    if (now < prepare_end_) return;
    for (std::size_t member = 0; member < prepared_.size(); ++member) {
      if (!prepared_[member]) drop(member, fmt::format("it does not answer for {:.0f} s", kPrepareSeconds));
    }
    return begin_rounds(now);
  }
  if (now >= end_) {
    outcome_.out_of_time = stage_ != Stage::kCrossed;
    return finish(now);
  }
  pass_meetings(now);
}

void Referee::announce(const Verdict& verdict) {
  for (const Seat& seat : seats_) {
    if (seat.connection) outgoing_.push_back({*seat.connection, verdict, true});
  }
}

}  // namespace init::ping
