// Gathers the messages of several ranks, so that a connection carries few frames. Pure.
#pragma once

#include <limits>
#include <map>
#include <vector>

#include "init/ping/desk.hpp"

namespace init::ping {

class Bundles {
 public:
  // Longest time in seconds for which a message waits for further ones.
  static constexpr double kGatherSeconds = 0.01;

  // connection: that of the relay, or of rank 0. rank: the rank whose message it is.
  void add(int connection, unsigned rank, Message message);
  // Discards the messages for a connection that has ended.
  void discard(int connection);
  // Moves all messages to `out` if none is expected to follow at once, or if the first of them has waited for long
  // enough and the desk is idle.
  void take(bool is_complete, bool is_idle, double now, std::vector<Desk::Outgoing>& out);
  // Returns the time at which take() moves the messages; infinity if there are none.
  double due() const { return due_; }

 private:
  struct Gathered {
    std::vector<Bundle> bundles = {};
    std::size_t bytes = 0;  // size of the last one
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  std::map<int, Gathered> gathered_;  // by connection
  double due_ = kNever;
};

}  // namespace init::ping
