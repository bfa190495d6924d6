#include "init/ping/causes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "init/ping/blame.hpp"
#include "init/ping/describe.hpp"

namespace init::ping {
namespace {

using Kind = Cause::Kind;

constexpr std::size_t kMostLinks = 100;  // most links that are named

// The failed tests of one object.
struct Share {
  std::size_t failed = 0;
  std::size_t tested = 0;
  std::size_t untested = 0;
  const Fault* example = nullptr;  // the first one with the lowest layer

  void add(const Fault& fault) {
    ++failed;
    if (example == nullptr || fault.layer < example->layer) example = &fault;
  }
  void add(const Share& other) {
    failed += other.failed;
    tested += other.tested;
    untested += other.untested;
    if (other.example != nullptr && (example == nullptr || other.example->layer < example->layer))
      example = other.example;
  }
};

std::string describe(const Fault& fault) {
  return describe(Failure{fault.layer, fault.detail == nullptr ? "" : *fault.detail});
}

// Returns "3 of 7 tests failed, 4 did not run".
std::string results_of(const Share& share) {
  if (share.tested == 0) return fmt::format("{} did not run", count_of(share.untested, "test"));
  return fmt::format("{} of {} failed{}", share.failed, count_of(share.tested, "test"),
                     share.untested == 0 ? "" : fmt::format(", {} did not run", share.untested));
}

class Naming {
 public:
  explicit Naming(const Outcome& outcome) : outcome_(outcome) {}
  std::vector<Cause> find() {
    add_unequal();
    add_absent();
    const bool stopped = outcome_.cells.empty() && !causes_.empty();  // the job stopped before the tests
    if (!stopped && outcome_.members.size() > 1) {
      blame_ = find_blame(outcome_);
      share_faults();
    }
    for (std::size_t member = 0; member < outcome_.members.size(); ++member)
      add_member(member);
    for (unsigned rail = 0; rail < of_rail_.size(); ++rail)
      add_rail_of_all(rail);
    add_links();
    add_untested();
    std::ranges::stable_sort(causes_, {}, &Cause::kind);
    return std::move(causes_);
  }

 private:
  // The lines are in the order of the members.
  void add_unequal() {
    std::size_t member = 0;
    for (const std::string& line : outcome_.unequal) {
      while (member < outcome_.members.size() && !line.starts_with(name_of(outcome_.members[member]) + " "))
        ++member;
      Cause& cause = add(Kind::kRank, Layer::kRank, {}, line);
      if (member < outcome_.members.size()) cause.rank = outcome_.members[member].rank;
      cause.remedy = "run `rdma-init doctor` on this rank";
    }
  }

  void add_absent() {
    const std::vector<unsigned>& absent = outcome_.absent;
    if (absent.empty()) return;
    Cause& cause = add(Kind::kRank, Layer::kRank, {},
                       fmt::format("{} {} did not come: {} of {} ranks came", absent.size() == 1 ? "rank" : "ranks",
                                   name_ranks(absent), outcome_.size - absent.size(), outcome_.size));
    cause.rank = absent.front();
    cause.remedy =
        "read the log of each of these ranks: it did not start, or does not reach rank 0; --timeout sets how long rank "
        "0 "
        "waits";
  }

  void share_faults() {
    of_end_.resize(blame_.ends.size());
    of_rail_.resize(outcome_.rails);
    for (std::size_t i = 0; i < blame_.ends.size(); ++i) {
      const End& end = blame_.ends[i];
      of_end_[i].tested = end.good + end.failed;
      of_end_[i].untested = end.untested;
      Share& rail = of_rail_[i % outcome_.rails];
      rail.tested += end.good + end.failed;
      rail.untested += end.untested;
    }
    for (Share& rail : of_rail_) {
      rail.tested /= 2;
      rail.untested /= 2;
    }
    for (const Fault& fault : blame_.faults) {
      if (fault.owner == Fault::Owner::kLink) {
        links_.push_back(&fault);
      } else if (fault.owner == Fault::Owner::kRail) {
        of_rail_[fault.rail].add(fault);
      } else {
        const std::size_t member = fault.owner == Fault::Owner::kFirst ? fault.first : fault.second;
        of_end_[member * outcome_.rails + fault.rail].add(fault);
      }
    }
  }

  void add_member(std::size_t member) {
    const Member& one = outcome_.members[member];
    if (one.problem.failed()) {
      const Share share = share_of(member);
      add(Kind::kRank, one.problem.layer, share,
          fmt::format("{}: {}; {}", name_of(one), describe(one.problem), results_of(share)))
          .rank = one.rank;
      return;
    }
    add_rails_with_problems(member);
    add_blamed_rails(member);
  }

  void add_rails_with_problems(std::size_t member) {
    const Member& one = outcome_.members[member];
    const auto is_alike = [&](const Rail& rail) {
      return rail.problem.failed() && rail.problem.layer == one.rails.front().problem.layer;
    };
    if (!one.rails.empty() && std::ranges::all_of(one.rails, is_alike)) {
      const Share share = share_of(member);
      const std::string all = one.rails.size() == 1 ? "" : fmt::format("all {} rails: ", one.rails.size());
      const Failure& problem = one.rails.front().problem;
      add(Kind::kRank, problem.layer, share,
          fmt::format("{}: {}{}; {}", name(member, 0), all, describe(problem), results_of(share)))
          .rank = one.rank;
      return;
    }
    for (unsigned rail = 0; rail < one.rails.size(); ++rail) {
      const Failure& problem = one.rails[rail].problem;
      if (!problem.failed()) continue;
      const Share share = share_of(member, rail);
      Cause& cause = add(Kind::kRailOfRank, problem.layer, share,
                         fmt::format("{}: {}; {}", name(member, rail), describe(problem), results_of(share)));
      cause.rank = one.rank;
      cause.rail = rail;
    }
  }

  void add_blamed_rails(std::size_t member) {
    std::vector<unsigned> blamed;
    for (unsigned rail = 0; rail < rails_of(member); ++rail) {
      if (share_of(member, rail).failed > 0 && !outcome_.members[member].rails[rail].problem.failed())
        blamed.push_back(rail);
    }
    if (blamed.empty()) return;
    const unsigned rank = outcome_.members[member].rank;
    if (blamed.size() == rails_of(member)) {
      const Share share = share_of(member);
      const std::string all = blamed.size() == 1 ? "" : fmt::format(" on {} rails", blamed.size());
      add(Kind::kRank, share.example->layer, share,
          fmt::format("{}: {}{}, {}", name(member, share.example->rail), results_of(share), all,
                      example_of(share, member)))
          .rank = rank;
      return;
    }
    for (const unsigned rail : blamed) {
      const Share share = share_of(member, rail);
      Cause& cause = add(Kind::kRailOfRank, share.example->layer, share,
                         fmt::format("{}: {}, {}", name(member, rail), results_of(share), example_of(share, member)));
      cause.rank = rank;
      cause.rail = rail;
    }
  }

  void add_rail_of_all(unsigned rail) {
    const Share& share = of_rail_[rail];
    if (!blame_.is_dead[rail]) return;
    const Fault& fault = *share.example;
    add(Kind::kRail, fault.layer, share,
        fmt::format("rail {} of all ranks: {}, for example between {} and {}: {}", rail, results_of(share),
                    name(fault.first, rail), name(fault.second, rail), describe(fault)))
        .rail = rail;
  }

  void add_links() {
    for (std::size_t i = 0; i < std::min(links_.size(), kMostLinks); ++i)
      add_link(*links_[i]);
    if (links_.size() <= kMostLinks) return;
    Share rest;
    for (std::size_t i = kMostLinks; i < links_.size(); ++i)
      rest.add(*links_[i]);
    rest.tested = rest.failed;
    add(Kind::kLink, rest.example->layer, rest, fmt::format("{} more tests between two ranks failed", rest.failed));
  }

  void add_link(const Fault& fault) {
    Cause& cause = add(Kind::kLink, fault.layer, {1, 1},
                       fmt::format("rail {} between {} and {}: 1 of 1 test failed: {}", fault.rail,
                                   name(fault.first, fault.rail), name(fault.second, fault.rail), describe(fault)));
    cause.rank = outcome_.members[fault.first].rank;
    cause.other = outcome_.members[fault.second].rank;
    cause.rail = fault.rail;
  }

  void add_untested() {
    if (blame_.untested == 0) return;
    Cause& cause = add(Kind::kLink, Layer::kUntested, {},
                       fmt::format("{} of {} tests did not run{}", blame_.untested, blame_.tests,
                                   outcome_.out_of_time ? ": the time budget ended" : ""));
    cause.remedy = causes_.size() == 1 ? "run rdma-ping again" : "repair the other causes and run rdma-ping again";
  }

  Cause& add(Kind kind, Layer layer, const Share& share, std::string message) {
    const std::string remedy(about(layer).remedy);
    causes_.push_back({kind, {}, {}, {}, layer, share.failed, share.tested, std::move(message), remedy});
    return causes_.back();
  }

  std::size_t rails_of(std::size_t member) const { return outcome_.members[member].rails.size(); }
  Share share_of(std::size_t member, unsigned rail) const {
    const std::size_t at = member * outcome_.rails + rail;
    return at < of_end_.size() && rail < outcome_.rails ? of_end_[at] : Share{};
  }

  Share share_of(std::size_t member) const {
    Share sum;
    for (unsigned rail = 0; rail < outcome_.rails; ++rail)
      sum.add(share_of(member, rail));
    return sum;
  }

  std::string name(std::size_t member, unsigned rail) const {
    return fmt::format("{}, {}", name_of(outcome_.members[member]), describe(outcome_.members[member], rail));
  }

  std::string example_of(const Share& share, std::size_t member) const {
    const Fault& fault = *share.example;
    const std::size_t peer = fault.first == member ? fault.second : fault.first;
    return fmt::format("{}with {}: {}", share.failed == 1 ? "" : "for example ", name(peer, fault.rail),
                       describe(fault));
  }

  const Outcome& outcome_;
  Blame blame_;
  std::vector<Share> of_end_;   // failed tests of each end, with the indexes of Blame::ends
  std::vector<Share> of_rail_;  // failed tests of each rail, over all members
  std::vector<const Fault*> links_;
  std::vector<Cause> causes_;
};

}  // namespace

std::vector<Cause> find_causes(const Outcome& outcome) {
  return Naming(outcome).find();
}

}  // namespace init::ping
