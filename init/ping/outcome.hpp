// The result of a test of pairs of ranks. The referee fills it; causes.hpp and the reports read it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/address.hpp"
#include "init/ping/layers.hpp"

namespace init::ping {

// A port that NCCL uses on a rank. Rail N of a rank is the Nth of these ports.
struct Rail {
  std::string device;  // verbs name
  unsigned port = 1;
  bool infiniband = false;
  unsigned rate_mbps = 0;  // megabits per second
  std::string netdev;      // netdev of the GID in this network namespace; empty: none
  unsigned gid_index = 0;
  fabric::Address gid;     // RoCE: at gid_index
  unsigned mtu = 0;        // active MTU of the port in bytes
  std::uint16_t pkey = 0;  // InfiniBand: P_Key at the index of NCCL_IB_PKEY; 0: not known, or the entry is empty
  Failure problem = {};    // why no connection can use this rail
  friend bool operator==(const Rail&, const Rail&) = default;
};

// A rank that tests for its node.
struct Member {
  unsigned rank = 0;
  std::string host;               // name of the host, for messages
  std::vector<unsigned> waiting;  // further ranks of its node, ascending
  std::vector<Rail> rails;
  std::vector<std::string> unused;  // ports that NCCL does not use, one line each with the reason
  Failure problem = {};             // why the rank itself failed: it ended, is silent, or has no libibverbs
  // The rank whose end or silence is the problem: this rank reports through it.
  std::optional<unsigned> lost_with = {};
};

enum class Side : std::uint8_t { kUnknown, kFirst, kSecond };

// A failed test. first and second: positions in Outcome::members, first < second.
struct FailedPair {
  std::size_t first = 0;
  std::size_t second = 0;
  unsigned first_rail = 0;
  unsigned second_rail = 0;
  Failure failure;
  Side culprit = Side::kUnknown;  // the end that has the cause, if its own check has proven it
};

struct Outcome {
  unsigned size = 0;             // ranks of the job
  std::vector<Member> members;   // the members, by ascending ranks
  std::vector<unsigned> absent;  // ranks that never came, ascending
  // Reasons why the members cannot work together, one line each: another number of HCAs, another rate or link layer.
  // If there are any, no pair was tested.
  std::vector<std::string> unequal;
  std::vector<std::string> strangers;  // connections that were refused, one line each; at most kMostStrangers
  unsigned rails = 0;                  // rails of each member
  // The pairs of members of a sparse schedule, as positions, the lower one first, ascending by the second and then the
  // first one; empty: all pairs.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  // The result of each pair and rail: cells[cell_of(first, second, rail)]. A rail that failed with several ranks is no
  // longer tested: its further cells are kUntested.
  std::vector<Layer> cells;
  std::vector<float> gbps;           // bandwidth by the index of `cells`, with --bw; 0: not measured
  std::vector<FailedPair> failures;  // failed tests with the same rail at both ends
  std::vector<FailedPair> crossed;   // --rails all: two different rails
  std::size_t crossed_tested = 0;    // --rails all: tests of two different rails
  std::size_t crossed_dropped = 0;   // failures of them that `crossed` does not hold
  double seconds = 0;                // time from the first round to the last result
  bool out_of_time = false;          // the time budget ended before the last round

  static constexpr std::size_t kMostStrangers = 16;

  std::size_t crossed_failed() const { return crossed.size() + crossed_dropped; }

  // Returns true if not all pairs meet.
  bool is_sparse() const { return !pairs.empty(); }
  // Returns the number of pairs that meet.
  std::size_t count_pairs() const;
  // Returns the index of a pair and rail in `cells`; an index behind the last cell of all pairs that meet if this pair
  // is none of them. first < second.
  std::size_t cell_of(std::size_t first, std::size_t second, unsigned rail) const;
  // Adds pairs to those that meet. Keeps the results of all pairs. Call it with a sparse schedule only.
  void add_pairs(const std::vector<std::pair<std::size_t, std::size_t>>& added);
  // Calls visit(first, second, rail, cell) for each cell, in the order of the cells.
  void for_each_cell(auto visit) const {
    std::size_t cell = 0;
    const auto visit_pair = [&](std::size_t first, std::size_t second) {
      for (unsigned rail = 0; rail < rails; ++rail)
        visit(first, second, rail, cell++);
    };
    for (const auto& [first, second] : pairs)
      visit_pair(first, second);
    for (std::size_t second = 1; second < members.size() && !is_sparse(); ++second) {
      for (std::size_t first = 0; first < second; ++first)
        visit_pair(first, second);
    }
  }
};

}  // namespace init::ping
