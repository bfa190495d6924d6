// A relay: a rank that carries the messages between rank 0 and other ranks, so that rank 0 has few connections and
// frames. Pure.
//
// The relay decides nothing. It passes the end of a rank to rank 0, and the verdict to all ranks. If rank 0 ends, or
// sends no verdict in time, the relay makes that the verdict of its ranks.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "init/ping/bundles.hpp"

namespace init::ping {

inline constexpr double kBeatSeconds = 1;  // time between two signs that a relay runs

class Relay : public Desk {
 public:
  // rank0: number of the connection to rank 0. end: time at which the relay no longer waits for the verdict.
  Relay(int rank0, double now, double end) : rank0_(rank0), beat_at_(now), end_(end) {}

  void receive(int connection, const std::string& from, Message message, double now) override;
  void refuse(int connection, const std::string& from, const Hello& hello, const std::string& reason) override;
  void lose(int connection, double now) override;
  void pass(double now) override;
  double deadline() const override;
  bool is_finished() const override { return verdict_.has_value(); }
  bool has_seat(int connection) const override { return ranks_.contains(connection); }
  void announce(const Verdict& verdict) override;
  std::vector<Outgoing> take_outgoing(bool is_idle, double now) override;
  // Returns true if the verdict is that of rank 0.
  bool is_of_rank0() const { return is_of_rank0_; }
  // Call it after is_finished().
  const Verdict& verdict() const { return *verdict_; }

 private:
  void attach(int connection, unsigned rank);
  void pass_on(const Carried& carried);
  void forget(int connection);

  int rank0_;
  double beat_at_;
  double end_;
  std::map<int, unsigned> ranks_;            // by connection
  std::map<unsigned, int> connections_;      // by rank
  std::map<unsigned, unsigned> unanswered_;  // for each rank: messages of rank 0 that it has not answered
  std::size_t open_ = 0;                     // sum of unanswered_
  bool is_complete_ = false;                 // the last open message was answered
  Bundles bundles_;
  std::vector<Outgoing> outgoing_;
  std::optional<Verdict> verdict_;
  bool is_of_rank0_ = false;
};

}  // namespace init::ping
