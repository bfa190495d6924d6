// ping_coverage [FABRICS [SEED]]: breaks FABRICS fabrics of 128, 1,024 and 16,384 ranks by one fault each, and counts
// the faults that the sparse schedule of rdma-ping shows. 32 ranks that follow each other share a leaf switch; the
// first one has rank 0, or, for the kind with this name, rank 13. A fault is on one rail of two. Prints a table in
// Markdown: the share of the faults for which a test fails, and the share of some of these fabrics for which one cause
// explains all failed tests. Exit code 1: less than 99.9 % of the ends, cables, pairs of leaf switches or rails are
// found.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "init/ping/causes.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/schedule.hpp"
#include "init/ping/totals.hpp"

namespace {

using namespace init::ping;

constexpr std::size_t kLeaf = 32;
constexpr std::size_t kShift = 13;  // first rank of the first leaf switch of Kind::kShiftedLeafPair
constexpr unsigned kRails = 2;

enum class Kind { kEnd, kCable, kLeafPair, kRail, kDirectionOfEnd, kDirectionOfLeaf, kShiftedLeafPair, kPair };
constexpr std::array kNames = {"end",
                               "cable",
                               "pair of leaf switches",
                               "rail",
                               "one direction: an end does not send",
                               "one direction: from one leaf switch to another one",
                               "pair of leaf switches that begin at rank 13",
                               "one bad pair"};
constexpr std::size_t kKinds = kNames.size();

// A test has both directions, so that a fault of one direction breaks the same tests as one of both.
struct Fault {
  Kind kind = Kind::kEnd;
  unsigned rail = 0;
  std::size_t one = 0;    // member or leaf switch
  std::size_t other = 0;  // the second one of a pair

  bool hits(std::size_t first, std::size_t second) const {
    switch (kind) {
      case Kind::kEnd:
      case Kind::kCable:
      case Kind::kDirectionOfEnd:
        return first == one || second == one;
      case Kind::kLeafPair:
      case Kind::kDirectionOfLeaf:
      case Kind::kShiftedLeafPair:
        return (is_below(first, one) && is_below(second, other)) || (is_below(first, other) && is_below(second, one));
      case Kind::kPair:
        return first == std::min(one, other) && second == std::max(one, other);
      default:
        return true;
    }
  }
  // Returns true if the member is below the leaf switch.
  bool is_below(std::size_t member, std::size_t leaf) const {
    const std::size_t shift = kind == Kind::kShiftedLeafPair ? kShift : 0;
    return member >= shift && (member - shift) / kLeaf == leaf;
  }
  // Returns true if the cause is at this fault.
  bool has(const Cause& cause) const {
    const auto is_there = [&](unsigned rank) {
      switch (kind) {
        case Kind::kLeafPair:
        case Kind::kDirectionOfLeaf:
        case Kind::kShiftedLeafPair:
          return is_below(rank, one) || is_below(rank, other);
        case Kind::kPair:
          return rank == one || rank == other;
        default:
          return rank == one;
      }
    };
    if (kind == Kind::kRail) return cause.kind == Cause::Kind::kRail && cause.rail == rail;
    if (cause.rails != std::vector<unsigned>{rail}) return false;
    const bool are_there = std::ranges::all_of(cause.ranks, is_there) && std::ranges::all_of(cause.unreached, is_there);
    return are_there && (!cause.rank || is_there(*cause.rank)) && (!cause.other || is_there(*cause.other)) &&
           cause.kind != Cause::Kind::kRail;
  }
};

struct Figures {
  std::size_t found = 0;
  std::size_t examined = 0;
  std::size_t named = 0;
};

Fault draw(Kind kind, std::size_t count, std::mt19937& engine) {
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(engine); };
  Fault fault{kind, static_cast<unsigned>(below(kRails)), 0, 0};
  const bool is_shifted = kind == Kind::kShiftedLeafPair;
  const bool is_leaf = kind == Kind::kLeafPair || kind == Kind::kDirectionOfLeaf || is_shifted;
  const std::size_t end = is_leaf ? (count - (is_shifted ? kShift : 0)) / kLeaf : count;
  fault.one = below(end);
  do
    fault.other = below(end);
  while (fault.other == fault.one);
  return fault;
}

Outcome empty_outcome(std::size_t count, const std::vector<Pair>& pairs) {
  Outcome outcome;
  outcome.size = static_cast<unsigned>(count);
  outcome.rails = kRails;
  outcome.members.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    outcome.members[i].rank = static_cast<unsigned>(i);
    outcome.members[i].host = "host";
    outcome.members[i].rails.resize(kRails);
  }
  outcome.add_pairs(pairs);
  return outcome;
}

// Counts the faults for which the first cause explains all failed tests.
void examine(Outcome& outcome, const Fault& fault, Figures& figures) {
  std::size_t failed = 0;
  outcome.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    const bool is_hit = rail == fault.rail && fault.hits(first, second);
    outcome.cells[cell] = is_hit ? Layer::kRetry : Layer::kGood;
    failed += is_hit ? 1 : 0;
  });
  if (failed == 0) return;
  const std::vector<Cause> causes = find_causes(outcome);
  ++figures.examined;
  figures.named += !causes.empty() && causes.front().failed == failed && fault.has(causes.front()) ? 1 : 0;
}

std::array<Figures, kKinds> measure(std::size_t count, std::size_t fabrics, std::mt19937& engine) {
  std::array<Figures, kKinds> figures{};
  const std::size_t examined = std::max<std::size_t>(fabrics * 128 / count / 10, 5);
  for (std::size_t fabric = 0; fabric < fabrics; ++fabric) {
    const Schedule schedule(count, false, static_cast<std::uint32_t>(engine()));
    std::array<Fault, kKinds> faults;
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      faults[kind] = draw(static_cast<Kind>(kind), count, engine);
    std::array<bool, kKinds> found{};
    std::vector<Pair> all;
    for (std::size_t round = 0; round < schedule.rounds(); ++round) {
      for (const Pair& pair : schedule.pairs(round)) {
        for (std::size_t kind = 0; kind < kKinds; ++kind)
          found[kind] = found[kind] || faults[kind].hits(pair.first, pair.second);
        if (fabric < examined) all.push_back(pair);
      }
    }
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      figures[kind].found += found[kind] ? 1 : 0;
    if (fabric >= examined) continue;
    Outcome outcome = empty_outcome(count, all);
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      examine(outcome, faults[kind], figures[kind]);
  }
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  const int fabrics = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const auto seed = static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 1);
  if (fabrics < 1) {
    fmt::print(stderr, "usage: ping_coverage [FABRICS [SEED]]\n");
    return 2;
  }
  std::mt19937 engine(seed);
  fmt::print(
      "seed {}\n\n| ranks | rounds | fault | fabrics | found, % | fabrics with causes | one cause for all, % |\n"
      "| --: | --: | --- | --: | --: | --: | --: |\n",
      seed);
  bool is_right = true;
  for (const std::size_t count : {128U, 1024U, 16384U}) {
    const auto figures = measure(count, static_cast<std::size_t>(fabrics), engine);
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const double found = 100.0 * static_cast<double>(figures[kind].found) / fabrics;
      fmt::print("| {} | {} | {} | {} | {:.2f} | {} | {:.1f} |\n", count, sparse_rounds_of(count), kNames[kind],
                 fabrics, found, figures[kind].examined,
                 100.0 * static_cast<double>(figures[kind].named) /
                     static_cast<double>(std::max<std::size_t>(figures[kind].examined, 1)));
      const bool is_promised = static_cast<Kind>(kind) < Kind::kShiftedLeafPair;
      is_right = is_right && (found >= 99.9 || !is_promised);
    }
    std::fflush(stdout);
  }
  return is_right ? 0 : 1;
}
