// The tree of relays: which ranks report through another one.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "init/ping/referee.hpp"

namespace init::ping {
namespace {

// A relay that is silent for so long has stopped. Shorter than the limit of an answer: the relay is the cause of its
// ranks' silence.
constexpr double kSilentSeconds = 8;

}  // namespace

// Returns the branch with this connection to its relay, nullptr if there is none.
Referee::Branch* Referee::branch_of(int connection) {
  for (auto& [group, branch] : branches_) {
    if (branch.connection == connection && !branch.is_refused) return &branch;
  }
  return nullptr;
}

bool Referee::is_relay(int connection) const {
  return std::ranges::any_of(
      branches_, [&](const auto& entry) { return entry.second.connection == connection && !entry.second.is_refused; });
}

// Calls visit(rank) for the ranks of the group that are here.
template <typename Visit>
void Referee::for_group_of(unsigned rank, Visit visit) {
  const unsigned first = group_of(rank) * rules_.fan_out;
  for (unsigned one = first; one < std::min(first + rules_.fan_out, rules_.size); ++one) {
    if (seats_[one].connection) visit(one);
  }
}

// Decides through which connection a rank that has joined reports.
void Referee::place(unsigned rank, double now) {
  const unsigned group = group_of(rank);
  if (rules_.size < rules_.tree_from || group == 0) return settle(rank, now);
  const int connection = *seats_[rank].connection;
  if (rank % rules_.fan_out == 0) {
    branches_[group] = {connection, false, {}, now};
    outgoing_.push_back({connection, BecomeRelay{}, false});
    return;
  }
  const auto branch = branches_.find(group);
  if (branch == branches_.end()) return;  // the rank waits for its relay
  if (branch->second.is_refused) return settle(rank, now);
  if (!branch->second.way.host.empty()) outgoing_.push_back({connection, branch->second.way, false});
}

void Referee::settle(unsigned rank, double now) {
  if (!std::exchange(seats_[rank].is_settled, true)) ++settled_;
  if (stage_ == Stage::kMeeting && seated_ == seats_.size() && settled_ == seats_.size()) begin(now);
}

// Takes the answer of a rank to BecomeRelay or MoveTo.
void Referee::answer_place(unsigned rank, const Message& message, double now) {
  const auto branch = branches_.find(group_of(rank));
  const bool is_relay = rank % rules_.fan_out == 0 && branch != branches_.end();
  if (const auto* at = std::get_if<RelayAt>(&message); at != nullptr && is_relay && !at->host.empty())
    return open_branch(branch->second, rank, *at);
  if (!std::holds_alternative<StayDirect>(message)) return;
  if (!is_relay) return settle(rank, now);
  branch->second.is_refused = true;
  for_group_of(rank, [&](unsigned one) { settle(one, now); });
}

void Referee::open_branch(Branch& branch, unsigned rank, const RelayAt& at) {
  branch.way = {rank, at.host, at.port};
  for_group_of(rank, [&](unsigned one) {
    if (one != rank && !seats_[one].is_settled) outgoing_.push_back({*seats_[one].connection, branch.way, false});
  });
}

void Referee::attach(Branch& branch, unsigned rank, double now) {
  const bool is_expected = stage_ == Stage::kMeeting && rank < rules_.size &&
                           group_of(rank) == group_of(branch.way.relay) && seats_[rank].connection &&
                           !seats_[rank].is_settled;
  if (!is_expected)
    return bundles_.add(branch.connection, rank, Welcome{false, "rank 0 does not expect this rank here", 0});
  Seat& seat = seats_[rank];
  const int direct = *seat.connection;
  rank_of_.erase(direct);
  if (direct != branch.connection) former_[direct] = rank;
  seat.connection = through_relay(rank);
  const std::uint32_t limit = milliseconds(welcome_seconds(seat.join.rails.size(), now));
  bundles_.add(branch.connection, rank, Welcome{true, "", limit});
  settle(rank, now);
}

// The relay of this rank did not answer in time, so that the rank reports on its former connection.
void Referee::restore_direct(int connection, double now) {
  const auto former = former_.find(connection);
  if (former == former_.end() || stage_ != Stage::kMeeting) return;
  const unsigned rank = former->second;
  former_.erase(former);
  unseat(rank);
  seats_[rank].connection = connection;
  rank_of_[connection] = rank;
  ++seated_;
  settle(rank, now);
}

void Referee::receive_bundle(Branch& branch, const Bundle& bundle, double now) {
  const unsigned group = group_of(branch.way.relay);
  for (const Carried& carried : bundle.carried) {
    if (group_of(carried.rank) != group || carried.rank >= rules_.size) return;
    auto message = decode(carried.frame);
    if (!message) message = Message(Refusal{});  // which a rank never sends
    const bool is_attached = seats_[carried.rank].connection == through_relay(carried.rank);
    if (const auto* attached = std::get_if<Attach>(&*message)) {
      if (attached->rank == carried.rank) attach(branch, carried.rank, now);
    } else if (is_attached && std::holds_alternative<Lost>(*message)) {
      lose_seat(carried.rank, now);
    } else if (is_attached && !is_finished()) {
      take_of_rank(carried.rank, std::move(*message), now);
    }
  }
}

// The relay has ended or stopped, and with it all ranks that report through it. why: what it did, for messages.
void Referee::lose_branch(Branch& branch, const std::string& why, double now) {
  const int connection = branch.connection;
  bundles_.discard(connection);
  const auto entry = std::ranges::find_if(branches_, [&](const auto& one) { return &one.second == &branch; });
  const unsigned relay = entry->first * rules_.fan_out;
  branches_.erase(entry);
  std::vector<unsigned> lost;
  for_group_of(relay, [&](unsigned rank) {
    if (rank == relay || *seats_[rank].connection < 0) lost.push_back(rank);
  });
  for (const unsigned rank : lost)
    unseat(rank);
  if (stage_ == Stage::kMeeting || is_finished()) return;
  const std::string when = stage_ == Stage::kPreparing ? fmt::format("{} before the first round", why)
                                                       : fmt::format("{} in round {} of {}", why, next_, rounds_);
  for (const unsigned rank : lost) {
    if (rank == relay) {
      lose_rank(rank, fmt::format("rank {} {}", relay, when), std::nullopt);
    } else {
      lose_rank(rank, fmt::format("it reports through rank {}, which {}", relay, when),
                outcome_.members[member_of_[relay]].rank);
    }
  }
  go_on(now);
}

void Referee::pass_branches(double now) {
  for (auto next = branches_.begin(); next != branches_.end();) {
    Branch& branch = (next++)->second;
    const bool is_silent = !branch.is_refused && now - branch.received_at > kSilentSeconds;
    if (is_silent) lose_branch(branch, fmt::format("did not answer for {:.0f} s", kSilentSeconds), now);
  }
}

}  // namespace init::ping
