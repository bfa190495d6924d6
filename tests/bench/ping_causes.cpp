// ping_causes [FABRICS [SEED]]: breaks random fabrics by one to three faults, and compares the causes that rdma-ping
// prints with the faults. Each fabric has the complete schedule, and a sparse one in which a rank meets about 2 log2(N)
// peers, although rdma-ping takes it from 128 ranks on only. Prints a table in Markdown. Exit code 1: the first cause
// is an injected fault in less than 99 % of the fabrics, or more than 1 % of them have more than twice as many causes
// as faults. `verbose` after the seed prints each wrong fabric.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "init/ping/causes.hpp"
#include "init/ping/schedule.hpp"

namespace {

using namespace init::ping;
using Members = std::set<std::size_t>;

enum class Kind { kEnd, kCable, kRail, kLeaf, kGroup, kDirection, kMtu, kPkey, kFamily };
constexpr std::array kNames = {"end", "cable", "rail", "leaf", "group", "one direction", "MTU", "P_Key", "GID family"};

// Which tests of the rail a fault breaks.
enum class Breaks { kAll, kOfMembers, kAcross, kBetween, kNone };

struct Injected {
  Kind kind = Kind::kEnd;
  unsigned number = 0;  // in the fabric
  Breaks breaks = Breaks::kOfMembers;
  Members members = {};
  Members others = {};  // kBetween
  std::vector<bool> rails = {};
  Layer layer = Layer::kRetry;

  bool hits(std::size_t first, std::size_t second, unsigned rail) const {
    if (!rails[rail]) return false;
    const bool one = members.contains(first);
    const bool other = members.contains(second);
    switch (breaks) {
      case Breaks::kAll:
        return true;
      case Breaks::kOfMembers:
        return one || other;
      case Breaks::kAcross:
        return one != other;
      case Breaks::kBetween:
        return (one && others.contains(second)) || (other && others.contains(first));
      default:
        return false;
    }
  }
};

using Cells = std::vector<bool>;

class Fabric {
 public:
  explicit Fabric(std::mt19937& engine) : engine_(engine) {
    count_ = 4 + below(61);
    rails_ = 1 + static_cast<unsigned>(below(8));
    leaf_ = 2 + below(count_ / 2 - 1);
    infiniband_ = below(2) == 0;
    for (auto number = 1 + below(3); number > 0; --number)
      faults_.push_back(draw());
  }

  Outcome outcome(bool sparse) {
    Outcome made;
    made.size = static_cast<unsigned>(count_);
    made.rails = rails_;
    for (unsigned rank = 0; rank < count_; ++rank)
      made.members.push_back(member(rank));
    for (const Injected& fault : faults_)
      change_values(fault, made);
    const Schedule schedule(count_, !sparse, static_cast<std::uint32_t>(engine_()));
    std::vector<Pair> all;
    for (std::size_t round = 0; round < schedule.rounds() && !schedule.is_complete(); ++round) {
      for (const Pair& pair : schedule.pairs(round))
        all.push_back(pair);
    }
    made.add_pairs(all);
    made.cells.resize(made.count_pairs() * rails_);
    made.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
      made.cells[cell] = layer_of(first, second, rail);
    });
    return made;
  }

  const std::vector<Injected>& faults() const { return faults_; }

 private:
  std::size_t below(std::size_t end) { return engine_() % end; }

  Injected draw() {
    Injected fault;
    // P_Keys are of InfiniBand, families of RoCE. A fabric has two families, so it has one fault of this kind.
    const auto is_possible = [&](Kind kind) {
      if (kind == Kind::kPkey) return infiniband_;
      return kind != Kind::kFamily ||
             (!infiniband_ && std::ranges::find(faults_, kind, &Injected::kind) == faults_.end());
    };
    do
      fault.kind = static_cast<Kind>(below(kNames.size()));
    while (!is_possible(fault.kind));
    fault.number = static_cast<unsigned>(faults_.size());
    fault.rails.assign(rails_, false);
    fault.rails[below(rails_)] = true;
    const bool is_end = fault.kind == Kind::kEnd || fault.kind == Kind::kCable;
    const bool may_be_end = fault.kind == Kind::kMtu || fault.kind == Kind::kPkey || fault.kind == Kind::kFamily;
    const std::size_t most = fault.kind == Kind::kLeaf ? 1 : (count_ / leaf_ + 1) / 2;
    fault.members = is_end || (may_be_end && below(2) == 0) ? Members{below(count_)} : leaves(1 + below(most));
    if (fault.kind == Kind::kRail) fault.breaks = Breaks::kAll;
    if (fault.kind == Kind::kGroup || may_be_end) fault.breaks = Breaks::kAcross;
    if ((fault.kind == Kind::kGroup || fault.kind == Kind::kPkey) && below(2) == 0) fault.rails.assign(rails_, true);
    if (fault.kind == Kind::kFamily) fault.layer = Layer::kGid;
    if (fault.kind == Kind::kDirection) draw_direction(fault);
    if (fault.kind != Kind::kMtu) return fault;
    fault.layer = Layer::kMtu;
    // The active MTUs differ, or a switch has a smaller one.
    if (below(2) == 0) fault.breaks = Breaks::kNone;
    return fault;
  }

  // One end does not send, a link loses one direction, or one leaf switch has no route to another one.
  void draw_direction(Injected& fault) {
    const auto way = below(count_ < 2 * leaf_ ? 2 : 3);
    const auto draw_side = [&] { return way == 2 ? leaves(1) : Members{below(count_)}; };
    fault.members = draw_side();
    if (way == 0) return;
    fault.breaks = Breaks::kBetween;
    do
      fault.others = draw_side();
    while (fault.others == fault.members);
  }

  // Returns the ranks of leaf switches that follow each other. Ranks that follow each other share a leaf switch.
  Members leaves(std::size_t number) {
    Members members;
    const std::size_t start = below(count_ / leaf_ - number + 1) * leaf_;
    for (std::size_t at = start; at < start + number * leaf_; ++at)
      members.insert(at);
    return members;
  }

  Member member(unsigned rank) const {
    Member one;
    one.rank = rank;
    one.host = "host" + std::to_string(rank);
    for (unsigned rail = 0; rail < rails_; ++rail) {
      Rail& port = one.rails.emplace_back();
      port.device = "mlx5_" + std::to_string(rail);
      port.infiniband = infiniband_;
      port.mtu = 4096;
      port.pkey = infiniband_ ? 0xFFFF : 0;
      port.gid = *fabric::parse_address(infiniband_ ? "fe80::1" : "198.51.100.1");
    }
    return one;
  }

  void change_values(const Injected& fault, Outcome& made) const {
    for (const std::size_t one : fault.members) {
      for (unsigned rail = 0; rail < rails_; ++rail) {
        Rail& port = made.members[one].rails[rail];
        if (!fault.rails[rail]) continue;
        if (fault.kind == Kind::kPkey) port.pkey = static_cast<std::uint16_t>(0x8001 + fault.number);
        if (fault.kind == Kind::kFamily) port.gid = *fabric::parse_address("2001:db8::1");
        if (fault.kind == Kind::kMtu && fault.breaks == Breaks::kNone) port.mtu = 256U << fault.number;
      }
    }
  }

  Layer layer_of(std::size_t first, std::size_t second, unsigned rail) const {
    Layer layer = Layer::kGood;
    for (const Injected& fault : faults_) {
      if (!fault.hits(first, second, rail)) continue;
      layer = layer == Layer::kGood ? fault.layer : std::min(layer, fault.layer);
    }
    return layer;
  }

  std::mt19937& engine_;
  std::size_t count_ = 0;
  std::size_t leaf_ = 2;  // ranks of a leaf switch
  unsigned rails_ = 1;
  bool infiniband_ = false;
  std::vector<Injected> faults_;
};

// --- Faults and causes as sets of failed tests: equal sets are the same fault.

bool failed(Layer layer) {
  return layer != Layer::kGood && layer != Layer::kUntested;
}

Cells cells_if(const Outcome& outcome, auto is_hit) {
  Cells cells(outcome.cells.size());
  outcome.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    cells[cell] = failed(outcome.cells[cell]) && is_hit(first, second, rail);
  });
  return cells;
}

Cells cells_of(const Outcome& outcome, const Injected& fault) {
  return cells_if(
      outcome, [&](std::size_t first, std::size_t second, unsigned rail) { return fault.hits(first, second, rail); });
}

Members members_of(const Cause& cause) {
  if (cause.kind == Cause::Kind::kGroup) return {cause.ranks.begin(), cause.ranks.end()};
  return cause.rank ? Members{*cause.rank} : Members{};
}

Injected fault_of(const Cause& cause, unsigned rails, Breaks breaks) {
  Injected fault;
  fault.members = members_of(cause);
  fault.others = {cause.unreached.begin(), cause.unreached.end()};
  if (cause.other) fault.others = {*cause.other};
  fault.breaks = !fault.others.empty() ? Breaks::kBetween : fault.members.empty() ? Breaks::kAll : breaks;
  fault.rails.assign(rails, false);
  for (const unsigned rail : cause.rails)
    fault.rails[rail] = true;
  return fault;
}

bool is_same_value(const Outcome& outcome, const Cause& cause, const Injected& fault) {
  if (fault.kind != Kind::kMtu || fault.breaks != Breaks::kNone || cause.layer != Layer::kMtu) return false;
  const Injected found = fault_of(cause, outcome.rails, Breaks::kNone);
  return found.rails == fault.rails &&
         (found.members == fault.members || found.members.size() + fault.members.size() == outcome.members.size());
}

// Returns true if the cause is one of the faults.
bool is_injected(const Outcome& outcome, const Cause& cause, const std::vector<Injected>& faults) {
  for (const Breaks breaks : {Breaks::kOfMembers, Breaks::kAcross}) {
    const Cells own = cells_of(outcome, fault_of(cause, outcome.rails, breaks));
    if (std::ranges::find(own, true) == own.end()) continue;
    for (const Injected& fault : faults) {
      if (cells_of(outcome, fault) == own) return true;
    }
  }
  return std::ranges::any_of(faults, [&](const Injected& fault) { return is_same_value(outcome, cause, fault); });
}

// Returns true if the cause is several of the faults: a leaf switch and the end beside it are a larger leaf switch.
bool is_joined(const Outcome& outcome, const Cause& cause, const std::vector<Injected>& faults) {
  for (const Breaks breaks : {Breaks::kOfMembers, Breaks::kAcross}) {
    const Cells own = cells_of(outcome, fault_of(cause, outcome.rails, breaks));
    Cells all(own.size());
    for (const Injected& fault : faults) {
      const Cells cells = cells_of(outcome, fault);
      bool is_part = true;
      for (std::size_t i = 0; i < cells.size(); ++i)
        is_part = is_part && (!cells[i] || own[i]);
      for (std::size_t i = 0; i < cells.size() && is_part; ++i)
        all[i] = all[i] || cells[i];
    }
    if (all == own && std::ranges::find(own, true) != own.end()) return true;
  }
  return false;
}

bool is_visible(const Outcome& outcome, const Injected& fault) {
  const Cells cells = cells_of(outcome, fault);
  return fault.breaks == Breaks::kNone || std::ranges::find(cells, true) != cells.end();
}

// --- The figures.

struct Figures {
  std::size_t fabrics = 0;
  std::size_t right = 0;     // the first cause is an injected fault
  std::size_t joined = 0;    // the first cause is several of them, with the failures of one larger fault
  std::size_t too_many = 0;  // more than twice as many causes as faults
  std::size_t faults = 0;
  std::size_t causes = 0;
  double longest_ms = 0;
};

std::string text_of(const Outcome& outcome, const std::vector<Injected>& faults, const std::vector<Cause>& causes) {
  std::string text = fmt::format("{} ranks, {} rails\n", outcome.members.size(), outcome.rails);
  for (const Injected& fault : faults)
    text += fmt::format("  fault: {} ({}): {} rails {} others {}\n", kNames[static_cast<std::size_t>(fault.kind)],
                        static_cast<int>(fault.breaks), fault.members, fault.rails, fault.others);
  for (const Cause& cause : causes)
    text += fmt::format("  cause: {}\n", cause.message);
  return text;
}

void measure(Fabric& fabric, bool sparse, bool verbose, Figures& figures) {
  const Outcome outcome = fabric.outcome(sparse);
  std::vector<Injected> faults = fabric.faults();
  std::erase_if(faults, [&](const Injected& fault) { return !is_visible(outcome, fault); });
  if (faults.empty()) return;  // no test shows the fault
  const auto start = std::chrono::steady_clock::now();
  std::vector<Cause> causes = find_causes(outcome);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::erase_if(causes, [](const Cause& cause) { return cause.layer == Layer::kUntested; });
  const bool is_right = !causes.empty() && is_injected(outcome, causes.front(), faults);
  const bool is_several = !causes.empty() && !is_right && is_joined(outcome, causes.front(), faults);
  const bool is_too_many = causes.size() > 2 * faults.size();
  if (verbose && ((!is_right && !is_several) || is_too_many)) fmt::print("{}", text_of(outcome, faults, causes));
  ++figures.fabrics;
  figures.right += is_right ? 1 : 0;
  figures.joined += is_several ? 1 : 0;
  figures.too_many += is_too_many ? 1 : 0;
  figures.faults += faults.size();
  figures.causes += causes.size();
  figures.longest_ms = std::max(figures.longest_ms, took.count());
}

bool print(const char* schedule, const Figures& figures) {
  const auto percent = [&](std::size_t count) {
    return 100.0 * static_cast<double>(count) / static_cast<double>(figures.fabrics);
  };
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} |\n", schedule, figures.fabrics,
             percent(figures.right), percent(figures.joined), percent(figures.too_many),
             static_cast<double>(figures.causes) / static_cast<double>(figures.faults), figures.longest_ms);
  return percent(figures.right + figures.joined) >= 99 && percent(figures.too_many) <= 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int fabrics = argc > 1 ? std::atoi(argv[1]) : 5000;
  const auto seed = static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 1);
  const bool verbose = argc > 3 && std::string_view(argv[3]) == "verbose";
  if (fabrics < 1) {
    fmt::print(stderr, "usage: ping_causes [FABRICS [SEED [verbose]]]\n");
    return 2;
  }
  std::mt19937 engine(seed);
  Figures complete;
  Figures sparse;
  for (int i = 0; i < fabrics; ++i) {
    Fabric fabric(engine);
    measure(fabric, false, verbose, complete);
    measure(fabric, true, verbose, sparse);
  }
  fmt::print(
      "seed {}\n\n| schedule | fabrics | first cause is a fault, % | is several joined, % | more than 2 causes per "
      "fault, % "
      "| causes per fault | longest, ms |\n| --- | --: | --: | --: | --: | --: | --: |\n",
      seed);
  const bool is_complete_right = print("complete", complete);
  const bool is_sparse_right = print("sparse", sparse);
  return is_complete_right && is_sparse_right ? 0 : 1;
}
