#include "init/ping/relay.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "init/ping/options.hpp"

namespace init::ping {
namespace {

bool is_request(const Message& message) {
  return std::holds_alternative<Prepare>(message) || std::holds_alternative<Round>(message) ||
         std::holds_alternative<Contacts>(message) || std::holds_alternative<Go>(message);
}

Verdict without_rank0(const char* reason) {
  return {kExitFailure, reason, "read the log of rank 0"};
}

}  // namespace

void Relay::attach(int connection, unsigned rank) {
  if (!connections_.emplace(rank, connection).second) {
    outgoing_.push_back({connection, Welcome{false, fmt::format("rank {} is here already", rank), 0}, true});
    return;
  }
  ranks_.emplace(connection, rank);
  bundles_.add(rank0_, rank, Attach{rank});
}

void Relay::receive(int connection, const std::string& /*from*/, Message message, double /*now*/) {
  if (connection == rank0_) {
    if (auto* verdict = std::get_if<Verdict>(&message)) {
      verdict_ = std::move(*verdict);
      is_of_rank0_ = true;
    }
    const auto* const bundle = std::get_if<Bundle>(&message);
    for (const Carried& carried : bundle == nullptr ? std::vector<Carried>() : bundle->carried)
      pass_on(carried);
    return;
  }
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) {
    if (const auto* wanted = std::get_if<Attach>(&message)) attach(connection, wanted->rank);
    return;
  }
  unsigned& unanswered = unanswered_[found->second];
  if (unanswered > 0) {
    --unanswered;
    is_complete_ = --open_ == 0;
  }
  bundles_.add(rank0_, found->second, std::move(message));
}

// Passes a message of rank 0 to its rank.
void Relay::pass_on(const Carried& carried) {
  const auto found = connections_.find(carried.rank);
  auto message = decode(carried.frame);
  if (found == connections_.end() || !message) return;
  const int connection = found->second;
  if (is_request(*message)) {
    ++unanswered_[carried.rank];
    ++open_;
  }
  const auto* const welcome = std::get_if<Welcome>(&*message);
  const bool is_refused = welcome != nullptr && !welcome->accepted;
  if (is_refused) forget(connection);
  outgoing_.push_back({connection, std::move(*message), is_refused});
}

void Relay::refuse(int connection, const std::string& /*from*/, const Hello& /*hello*/, const std::string& reason) {
  outgoing_.push_back({connection, Refusal{reason}, true});
}

void Relay::forget(int connection) {
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) return;
  open_ -= std::exchange(unanswered_[found->second], 0);
  connections_.erase(found->second);
  ranks_.erase(found);
}

void Relay::lose(int connection, double /*now*/) {
  if (connection == rank0_ && !verdict_) verdict_ = without_rank0("rank 0 has ended");
  const auto found = ranks_.find(connection);
  if (found == ranks_.end()) return;
  bundles_.add(rank0_, found->second, Lost{});
  forget(connection);
}

double Relay::deadline() const {
  return std::min({beat_at_, end_, bundles_.due()});
}

void Relay::pass(double now) {
  if (now >= end_ && !verdict_) verdict_ = without_rank0("rank 0 does not answer");
  if (now < beat_at_) return;
  beat_at_ = now + kBeatSeconds;
  outgoing_.push_back({rank0_, Bundle{}, false});
}

void Relay::announce(const Verdict& verdict) {
  for (const auto& [connection, rank] : ranks_)
    outgoing_.push_back({connection, verdict, true});
}

std::vector<Desk::Outgoing> Relay::take_outgoing(bool is_idle, double now) {
  bundles_.take(std::exchange(is_complete_, false), is_idle, now, outgoing_);
  return std::exchange(outgoing_, {});
}

}  // namespace init::ping
