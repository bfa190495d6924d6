// A model of ranks around a referee with a fake clock. Faults decide what a rank does not do.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "init/ping/referee.hpp"

namespace ping_test {

using namespace init::ping;

struct Faults {
  std::set<unsigned> absent;                       // never come
  std::map<unsigned, unsigned> silent_from_round;  // rank: the number of the round from which it answers nothing
  std::map<unsigned, unsigned> ended_in_round;     // rank: the number of the round in which its connection ends
  std::set<unsigned> never_prepared;
  // Returns the result of a test from the view of `rank`.
  std::function<TestResult(unsigned rank, unsigned peer, RailPair rails, std::uint32_t bytes)> result =
      [](unsigned, unsigned, RailPair, std::uint32_t) {
        return TestResult{{}, false, 0};
      };
  double test_seconds = 0.01;  // time until a result
  double failed_seconds = 6;   // time until the result of a failed test
  std::function<void(Join&)> change = [](Join&) {};
};

inline TestResult failed(Layer layer, bool is_own = false) {
  return {{layer, "model"}, is_own, 0};
}

class FabricModel {
 public:
  FabricModel(Rules rules, unsigned rails, Faults faults)
      : rules_(rules), rails_(rails), faults_(std::move(faults)), referee_(rules, 0), rounds_(rules.size) {}

  // Runs until the referee ends. Returns the time of its end.
  double run() {
    for (unsigned rank = 0; rank < rules_.size; ++rank)
      if (!faults_.absent.contains(rank)) receive(rank, join(rank));
    return finish();
  }

  // Runs until the referee ends, with the ranks that are here.
  double finish() {
    deliver();
    // A deadlock of the referee would end here, and not in a hang of the test.
    for (int step = 0; !referee_.is_finished() && step < 50'000'000; ++step)
      advance();
    return now_;
  }

  Join join(unsigned rank) const {
    Join made{
        rank, rules_.size, "node" + std::to_string(rank), "host" + std::to_string(rank), std::vector<Rail>(rails_), {}};
    for (unsigned rail = 0; rail < rails_; ++rail) {
      made.rails[rail].device = "mlx5_" + std::to_string(rail);
      made.rails[rail].rate_mbps = 400'000;
      made.rails[rail].mtu = 4096;
    }
    faults_.change(made);
    return made;
  }

  Referee& referee() { return referee_; }
  const Outcome& outcome() const { return referee_.outcome(); }
  // The answers to strangers.
  const std::vector<Welcome>& refusals() const { return refusals_; }
  // Tests that ran: ranks and rails, the lower rank first.
  const std::vector<std::pair<Pair, RailPair>>& tests() const { return tests_; }
  void receive(unsigned rank, Message message) {
    referee_.receive(static_cast<int>(rank) + 1, "10.0.0.1:5", std::move(message), now_);
  }
  void deliver() {
    for (Referee::Outgoing& one : referee_.take_outgoing())
      answer(static_cast<unsigned>(one.connection - 1), one.message);
  }

 private:
  void later(double seconds, std::function<void()> event) { events_.emplace(now_ + seconds, std::move(event)); }

  // Goes to the next event or deadline.
  void advance() {
    const double deadline = std::max(now_, referee_.deadline());
    if (!events_.empty() && events_.begin()->first <= deadline) {
      now_ = events_.begin()->first;
      const auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    } else {
      now_ = deadline;
      referee_.pass(now_);
    }
    deliver();
  }

  bool is_silent(unsigned rank) const {
    const auto found = faults_.silent_from_round.find(rank);
    return found != faults_.silent_from_round.end() && rounds_[rank].number >= found->second;
  }

  void answer(unsigned rank, const Message& message) {
    if (const auto* welcome = std::get_if<Welcome>(&message); welcome != nullptr && !welcome->accepted)
      refusals_.push_back(*welcome);
    if (std::holds_alternative<Prepare>(message) && !faults_.never_prepared.contains(rank))
      later(0.1, [this, rank] { receive(rank, Prepared{{}, join(rank).rails}); });
    if (const auto* round = std::get_if<Round>(&message)) begin(rank, *round);
    if (is_silent(rank)) return;
    if (const auto* contacts = std::get_if<Contacts>(&message)) {
      later(0.001, [this, rank, contacts = *contacts] {
        receive(rank, Connected{contacts.round, std::vector<Failure>(contacts.contacts.size())});
      });
    }
    if (const auto* go = std::get_if<Go>(&message)) test(rank, *go);
  }

  void begin(unsigned rank, const Round& round) {
    rounds_[rank] = round;
    const auto end = faults_.ended_in_round.find(rank);
    if (end != faults_.ended_in_round.end() && end->second == round.number)
      return later(0.001, [this, rank] { referee_.lose(static_cast<int>(rank) + 1, now_); });
    if (is_silent(rank)) return;
    later(0.001, [this, rank, round] {
      receive(rank, Contacts{round.number, std::vector<Contact>(round.rails.size())});
    });
  }

  void test(unsigned rank, const Go& go) {
    const Round& round = rounds_[rank];
    Results results{go.round, {}};
    double seconds = faults_.test_seconds;
    for (const RailPair rails : round.rails) {
      results.results.push_back(faults_.result(rank, round.peer, rails, round.bytes));
      if (results.results.back().failure.failed()) seconds = faults_.failed_seconds;
      if (rank < round.peer) tests_.push_back({{rank, round.peer}, rails});
    }
    later(seconds, [this, rank, results = std::move(results)] { receive(rank, results); });
  }

  Rules rules_;
  unsigned rails_;
  Faults faults_;
  Referee referee_;
  double now_ = 0;
  std::multimap<double, std::function<void()>> events_;
  std::vector<Round> rounds_;
  std::vector<Welcome> refusals_;
  std::vector<std::pair<Pair, RailPair>> tests_;
};

}  // namespace ping_test
