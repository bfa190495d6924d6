// A model of ranks around a referee with a fake clock. Faults decide what a rank does not do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "init/ping/referee.hpp"
#include "init/ping/relay.hpp"

namespace ping_test {

using namespace init::ping;

struct Faults {
  std::set<unsigned> absent;                       // never come
  std::map<unsigned, unsigned> silent_from_round;  // rank: the number of the round from which it answers nothing
  std::map<unsigned, unsigned> ended_in_round;     // rank: the number of the round in which its connection ends
  std::set<unsigned> never_prepared;
  std::set<unsigned> no_relay;        // cannot listen
  std::set<unsigned> not_reachable;   // relays that no other rank reaches
  std::set<unsigned> late_to_answer;  // take their relay's Welcome for lost, and report directly
  std::set<unsigned> ends_as_relay;   // end as soon as a rank has attached, and join again
  std::set<unsigned> stops_as_relay;  // answer nothing from the request to become a relay on
  // Returns the result of a test from the view of `rank`.
  std::function<TestResult(unsigned rank, unsigned peer, RailPair rails, std::uint32_t bytes)> result =
      [](unsigned, unsigned, RailPair, std::uint32_t) {
        return TestResult{{}, false, 0};
      };
  double test_seconds = 0.01;  // time until a result
  double jitter = 0;           // a result takes up to this share longer or shorter
  unsigned cpus = 0;           // rails of a rank that are tested side by side; 0: all
  double failed_seconds = 6;   // time until the result of a failed test
  std::function<void(Join&)> change = [](Join&) {};
};

// The time of rank 0 for its messages, one after the other. By default it needs none.
struct Machine {
  double frame = 0;    // seconds
  double carried = 0;  // seconds for each message in a Bundle
  double byte = 0;     // seconds
  double hop = 0;      // seconds on the network
  // Called with true before each call of the referee, and with false after it.
  std::function<void(bool)> meter = [](bool) {};
  // Called with true for each connection of rank 0 that begins, and with false for one that ends.
  std::function<void(bool)> connect = [](bool) {};
  bool is_real() const { return frame > 0; }
};

inline TestResult failed(Layer layer, bool is_own = false) {
  return {{layer, "model"}, is_own, 0};
}

class FabricModel {
 public:
  FabricModel(Rules rules, unsigned rails, Faults faults, Machine machine = {})
      : rules_(rules),
        rails_(rails),
        faults_(std::move(faults)),
        machine_(std::move(machine)),
        referee_(rules, 0),
        rounds_(rules.size),
        via_(rules.size),
        engine_(rules.seed) {}

  // Runs until the referee ends. Returns the time of its end.
  double run() {
    std::vector<unsigned> ranks;
    for (unsigned rank = 0; rank < rules_.size; ++rank)
      if (!faults_.absent.contains(rank)) ranks.push_back(rank);
    if (machine_.is_real()) std::ranges::shuffle(ranks, engine_);
    for (const unsigned rank : ranks)
      enter(rank);
    return finish();
  }

  // Runs until the referee ends, with the ranks that are here.
  double finish() {
    deliver();
    // A deadlock of the referee would end here, and not in a hang of the test.
    for (int step = 0; !referee_.is_finished() && step < 50'000'000; ++step)
      advance();
    return std::max(now_, busy_);
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
  // Tests that ran: ranks and rails, the lower rank first. A model with a real machine keeps none.
  const std::vector<std::pair<Pair, RailPair>>& tests() const { return tests_; }
  // Frames that rank 0 received and sent, with those that prove the token.
  std::size_t messages() const { return messages_; }
  std::size_t relayed() const {
    return static_cast<std::size_t>(std::ranges::count_if(via_, [](const auto& via) { return via.has_value(); }));
  }

  // Sends the message of a rank on its own connection to rank 0.
  void receive(unsigned rank, Message message) { arrive(connection_of(rank), std::move(message)); }
  void deliver() {
    machine_.meter(true);
    const bool is_idle = events_.empty() || events_.begin()->first >= busy_;
    std::vector<Desk::Outgoing> outgoing = referee_.take_outgoing(is_idle, std::max(now_, busy_));
    machine_.meter(false);
    for (Desk::Outgoing& one : outgoing) {
      const auto rank = static_cast<unsigned>(one.connection - 1);
      if (!machine_.is_real()) {
        take(rank, one.message);
        continue;
      }
      pay(one.message);
      later(busy_ - now_ + machine_.hop, [this, rank, message = std::move(one.message)] { take(rank, message); });
    }
  }

 private:
  struct Branch {
    Relay desk;
    bool is_running = true;
    double pass_at = 1e18;  // time of the next event
  };
  static constexpr int kRank0 = 0;  // number of the connection at a relay

  static int connection_of(unsigned rank) { return static_cast<int>(rank) + 1; }
  void later(double seconds, std::function<void()> event) { events_.emplace(now_ + seconds, std::move(event)); }

  // Rank 0 handles one frame after the other.
  void pay(const Message& message) {
    ++messages_;
    if (!machine_.is_real()) return;
    std::size_t bytes = 0;
    std::size_t carried = 0;
    if (const auto* bundle = std::get_if<Bundle>(&message)) {
      carried = bundle->carried.size();
      for (const Carried& one : bundle->carried)
        bytes += one.frame.size() + 6;
    } else {
      bytes = encode(message).size();
    }
    busy_ = std::max(busy_, now_) + machine_.frame + machine_.byte * static_cast<double>(bytes + 37) +
            machine_.carried * static_cast<double>(carried);
  }

  void enter(unsigned rank) {
    machine_.connect(true);
    for (const Message& message : {Message(Hello{kProtocol, std::string(kNonce, 'n'), rank, "host"}),
                                   Message(Challenge{std::string(kNonce, 'c')}), Message(Proof{})})
      pay(message);
    arrive(connection_of(rank), join(rank));
  }

  void arrive(int connection, Message message) {
    pay(message);
    machine_.meter(true);
    // Its strings are those of rank 0.
    if (machine_.is_real() && !std::holds_alternative<Bundle>(message)) message = *decode(encode(message));
    referee_.receive(connection, "10.0.0.1:5", std::move(message), std::max(now_, busy_));
    machine_.meter(false);
    if (machine_.is_real()) deliver();
  }

  void end_connection(unsigned rank) {
    machine_.connect(false);
    machine_.meter(true);
    referee_.lose(connection_of(rank), std::max(now_, busy_));
    machine_.meter(false);
  }

  // Goes to the next event or deadline.
  void advance() {
    // Rank 0 does nothing else until it has handled all frames.
    const double deadline = std::max({now_, busy_, referee_.deadline()});
    if (!events_.empty() && events_.begin()->first <= deadline) {
      now_ = events_.begin()->first;
      const auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    } else {
      now_ = deadline;
      machine_.meter(true);
      referee_.pass(std::max(now_, busy_));
      machine_.meter(false);
    }
    deliver();
  }

  bool is_silent(unsigned rank) const {
    const auto found = faults_.silent_from_round.find(rank);
    return found != faults_.silent_from_round.end() && rounds_[rank].number >= found->second;
  }

  // --- The process of a rank at its connection to rank 0, which may be a relay.

  void take(unsigned rank, const Message& message) {
    const auto branch = branches_.find(rank);
    if (branch != branches_.end()) {
      if (branch->second->is_running) branch->second->desk.receive(kRank0, "", message, now_);
      return flush(rank);
    }
    if (std::holds_alternative<BecomeRelay>(message)) return become_relay(rank);
    if (const auto* way = std::get_if<MoveTo>(&message)) return move(rank, way->relay);
    answer(rank, message);
  }

  void become_relay(unsigned rank) {
    if (faults_.stops_as_relay.contains(rank)) {
      faults_.silent_from_round[rank] = 0;
      faults_.never_prepared.insert(rank);
      return;
    }
    if (faults_.no_relay.contains(rank)) return later(0.001, [this, rank] { receive(rank, StayDirect{}); });
    branches_[rank] = std::make_unique<Branch>(Branch{Relay(kRank0, now_, now_ + longest_job(rails_, rules_))});
    later(0.001, [this, rank] { receive(rank, RelayAt{"relay", static_cast<std::uint16_t>(rank)}); });
    later(0.002, [this, rank] { attach(rank, rank); });
  }

  void move(unsigned rank, unsigned relay) {
    const auto branch = branches_.find(relay);
    if (faults_.not_reachable.contains(relay) || branch == branches_.end() || !branch->second->is_running)
      return later(3, [this, rank] { receive(rank, StayDirect{}); });
    later(0.001, [this, rank, relay] { attach(rank, relay); });
  }

  void attach(unsigned rank, unsigned relay) {
    const auto found = branches_.find(relay);
    if (found == branches_.end() || !found->second->is_running) return receive(rank, StayDirect{});
    found->second->desk.receive(connection_of(rank), "", Attach{rank}, now_);
    flush(relay);
    if (faults_.ends_as_relay.erase(relay) == 1) end_relay(relay, true);
  }

  // The relay ends, and its ranks with it, or they join again.
  void end_relay(unsigned relay, bool again) {
    branches_.at(relay)->is_running = false;
    end_connection(relay);
    if (!again) return;
    branches_.erase(relay);
    for (unsigned rank = 0; rank < rules_.size; ++rank) {
      if (rank != relay && via_[rank] != relay) continue;
      via_[rank].reset();
      later(0.5, [this, rank] { enter(rank); });
    }
  }

  // Delivers the messages of the relay.
  void flush(unsigned relay) {
    Branch& branch = *branches_.at(relay);
    if (!branch.is_running) return;
    for (Desk::Outgoing& one : branch.desk.take_outgoing(true, now_)) {
      if (one.connection == kRank0) {
        later(machine_.hop, [this, relay, message = std::move(one.message)] {
          const auto found = branches_.find(relay);
          if (found != branches_.end() && found->second->is_running) receive(relay, message);
        });
      } else {
        answer_through(static_cast<unsigned>(one.connection - 1), relay, one.message);
      }
    }
    const double next = branch.desk.deadline();
    if (next >= branch.pass_at) return;
    branch.pass_at = next;
    later(std::max(0.0, next - now_), [this, relay, next] {
      const auto found = branches_.find(relay);
      if (found == branches_.end() || found->second->pass_at != next) return;
      found->second->pass_at = 1e18;
      found->second->desk.pass(now_);
      flush(relay);
    });
  }

  void answer_through(unsigned rank, unsigned relay, const Message& message) {
    const auto* const welcome = std::get_if<Welcome>(&message);
    if (welcome == nullptr) return answer(rank, message);
    const bool is_late = rank != relay && faults_.late_to_answer.contains(rank);
    if (welcome->accepted && !is_late) {
      via_[rank] = relay;
      if (rank != relay) end_connection(rank);
      return;
    }
    if (is_late) {
      branches_.at(relay)->desk.lose(connection_of(rank), now_);
      flush(relay);
    }
    receive(rank, StayDirect{});
  }

  // --- The process of a rank that tests.

  void reply(unsigned rank, Message message) {
    if (!via_[rank]) return receive(rank, std::move(message));
    Branch& branch = *branches_.at(*via_[rank]);
    if (!branch.is_running) return;
    branch.desk.receive(connection_of(rank), "", std::move(message), now_);
    flush(*via_[rank]);
  }

  void end(unsigned rank) {
    if (!via_[rank]) return end_connection(rank);
    if (*via_[rank] == rank) return end_relay(rank, false);
    branches_.at(*via_[rank])->desk.lose(connection_of(rank), now_);
    flush(*via_[rank]);
  }

  void answer(unsigned rank, const Message& message) {
    if (const auto* welcome = std::get_if<Welcome>(&message); welcome != nullptr && !welcome->accepted)
      refusals_.push_back(*welcome);
    if (std::holds_alternative<Prepare>(message) && !faults_.never_prepared.contains(rank))
      later(0.1, [this, rank] { reply(rank, Prepared{{}, join(rank).rails}); });
    if (const auto* round = std::get_if<Round>(&message)) begin(rank, *round);
    if (is_silent(rank)) return;
    if (const auto* contacts = std::get_if<Contacts>(&message)) {
      later(0.001, [this, rank, contacts = *contacts] {
        reply(rank, Connected{contacts.round, std::vector<Failure>(contacts.contacts.size())});
      });
    }
    if (const auto* go = std::get_if<Go>(&message)) test(rank, *go);
  }

  void begin(unsigned rank, const Round& round) {
    rounds_[rank] = round;
    const auto found = faults_.ended_in_round.find(rank);
    if (found != faults_.ended_in_round.end() && found->second == round.number)
      return later(0.001, [this, rank] { end(rank); });
    if (is_silent(rank)) {
      if (branches_.contains(rank)) branches_.at(rank)->is_running = false;
      return;
    }
    later(0.001, [this, rank, round] {
      reply(rank, Contacts{round.number, std::vector<Contact>(round.rails.size())});
    });
  }

  void test(unsigned rank, const Go& go) {
    const Round& round = rounds_[rank];
    Results results{go.round, {}};
    const std::size_t turns =
        faults_.cpus == 0 ? 1 : (round.rails.size() + faults_.cpus - 1) / std::size_t{faults_.cpus};
    double seconds = faults_.test_seconds * static_cast<double>(turns);
    if (faults_.jitter > 0) seconds *= std::uniform_real_distribution(1 - faults_.jitter, 1 + faults_.jitter)(engine_);
    for (const RailPair rails : round.rails) {
      results.results.push_back(faults_.result(rank, round.peer, rails, round.bytes));
      if (results.results.back().failure.failed()) seconds = faults_.failed_seconds;
      if (rank < round.peer && !machine_.is_real()) tests_.push_back({{rank, round.peer}, rails});
    }
    later(seconds, [this, rank, results = std::move(results)] { reply(rank, results); });
  }

  Rules rules_;
  unsigned rails_;
  Faults faults_;
  Machine machine_;
  Referee referee_;
  double now_ = 0;
  double busy_ = 0;  // time at which rank 0 has handled all frames
  std::multimap<double, std::function<void()>> events_;
  std::vector<Round> rounds_;
  std::map<unsigned, std::unique_ptr<Branch>> branches_;  // by the rank of the relay
  std::vector<std::optional<unsigned>> via_;              // for each rank: its relay
  std::vector<Welcome> refusals_;
  std::vector<std::pair<Pair, RailPair>> tests_;
  std::mt19937 engine_;
  std::size_t messages_ = 0;
};

}  // namespace ping_test
