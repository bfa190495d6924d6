#include "init/ping/blame.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace init::ping {
namespace {

enum class State : std::uint8_t { kUntested, kGood, kFailed };

class BlameFinder {
 public:
  explicit BlameFinder(const Outcome& outcome) : outcome_(outcome), count_(outcome.members.size()) {
    blame_.tests = count_ * (count_ - 1) / 2 * outcome.rails;
    blame_.ends.resize(count_ * outcome.rails);
    blame_.is_dead.resize(outcome.rails);
    states_.resize(blame_.tests, State::kUntested);
  }
  Blame find() {
    read_tests();
    blame_problems();
    blame_proven();
    for (unsigned rail = 0; rail < outcome_.rails; ++rail) {
      blame_rail_of_all(rail);
      if (!blame_.is_dead[rail]) blame_ends(rail);
    }
    blame_rest();
    for (Fault& fault : blame_.faults)
      fault.owner = owner_of(fault);
    count_untested();
    return std::move(blame_);
  }

 private:
  void read_tests() {
    for (const FailedPair& failed : outcome_.failures) {
      State& state = states_[outcome_.cell_of(failed.first, failed.second, failed.first_rail)];
      if (state == State::kFailed) continue;
      state = State::kFailed;
      blame_.faults.push_back({failed.first, failed.second, failed.first_rail, failed.failure.layer, failed.culprit,
                               &failed.failure.detail});
    }
    read_cells();
    count_tests();
  }

  // A failed cell without an entry in `failures` is a failure as well. A missing cell is an untested one.
  void read_cells() {
    outcome_.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
      const Layer layer = cell < outcome_.cells.size() ? outcome_.cells[cell] : Layer::kUntested;
      if (states_[cell] == State::kFailed || layer == Layer::kUntested) return;
      states_[cell] = layer == Layer::kGood ? State::kGood : State::kFailed;
      if (layer != Layer::kGood) blame_.faults.push_back({first, second, rail, layer});
    });
  }

  void count_tests() {
    outcome_.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
      const State state = states_[cell];
      for (End* one : {&end(first, rail), &end(second, rail)})
        ++(state == State::kGood ? one->good : state == State::kFailed ? one->failed : one->untested);
    });
    for (End& one : blame_.ends)
      one.open = one.failed;
    for (const Fault& fault : blame_.faults) {
      End& first = end(fault.first, fault.rail);
      End& second = end(fault.second, fault.rail);
      if (second.good > 0) ++first.certain;
      if (first.good > 0) ++second.certain;
    }
  }

  void blame_problems() {
    for (std::size_t member = 0; member < count_; ++member) {
      const Member& one = outcome_.members[member];
      for (unsigned rail = 0; rail < outcome_.rails; ++rail) {
        const bool has_problem = rail < one.rails.size() && one.rails[rail].problem.failed();
        if (one.problem.failed() || has_problem) blame(member, rail);
      }
    }
  }

  // An end that is proven broken, and has no good test, explains its other failures too. An end with good tests may
  // have failed because of its peer: each rank proves that it has no route to a rail in the wrong network.
  void blame_proven() {
    for (const Fault& fault : blame_.faults) {
      if (fault.proven == Side::kUnknown) continue;
      const std::size_t member = fault.proven == Side::kFirst ? fault.first : fault.second;
      if (end(member, fault.rail).good == 0) blame(member, fault.rail);
    }
  }

  // Blames the rail if none of its tests was good, and no single end took part in all of them.
  void blame_rail_of_all(unsigned rail) {
    std::size_t good = 0;
    std::size_t open = 0;
    std::size_t most = 0;
    for (std::size_t member = 0; member < count_; ++member) {
      const End& one = end(member, rail);
      good += one.good;
      open += one.open;
      most = std::max(most, one.open);
    }
    blame_.is_dead[rail] = good == 0 && most < open / 2;
  }

  // Blames the end with the most failures first, so that its peers are not blamed for them. Failures with peers that
  // work count first: an end that met two broken peers is no longer tested, and may be good.
  void blame_ends(unsigned rail) {
    while (true) {
      std::optional<std::size_t> worst;
      for (std::size_t member = 0; member < count_; ++member) {
        const End& one = end(member, rail);
        if (one.good > 0 || one.open < 2) continue;
        const auto weight = [](const End& any) { return std::pair(any.certain, any.open); };
        if (!worst || weight(one) > weight(end(*worst, rail))) worst = member;
      }
      if (!worst) return;
      blame(*worst, rail);
    }
  }

  // An end without any good test, that failed with several peers, is to blame for a failure with a peer that works.
  void blame_rest() {
    for (const Fault& fault : blame_.faults) {
      const End& first = end(fault.first, fault.rail);
      const End& second = end(fault.second, fault.rail);
      if (first.order != 0 || second.order != 0 || blame_.is_dead[fault.rail]) continue;
      const auto is_worse = [](const End& one, const End& other) {
        return one.good == 0 && one.failed >= 2 && other.good > 0;
      };
      if (is_worse(first, second)) {
        blame(fault.first, fault.rail);
      } else if (is_worse(second, first)) {
        blame(fault.second, fault.rail);
      }
    }
  }

  void blame(std::size_t member, unsigned rail) {
    End& culprit = end(member, rail);
    if (culprit.order != 0) return;
    culprit.order = ++order_;
    culprit.has_cause = true;
    culprit.open = 0;
    for (std::size_t peer = 0; peer < count_; ++peer) {
      if (peer == member || end(peer, rail).order != 0) continue;
      const std::size_t cell = outcome_.cell_of(std::min(member, peer), std::max(member, peer), rail);
      if (states_[cell] == State::kFailed) --end(peer, rail).open;
    }
  }

  Fault::Owner owner_of(const Fault& fault) {
    End& first = end(fault.first, fault.rail);
    End& second = end(fault.second, fault.rail);
    if (fault.proven == Side::kFirst && first.order != 0) return Fault::Owner::kFirst;
    if (fault.proven == Side::kSecond && second.order != 0) return Fault::Owner::kSecond;
    if (first.order != 0 && (second.order == 0 || first.order < second.order)) return Fault::Owner::kFirst;
    if (second.order != 0) return Fault::Owner::kSecond;
    if (blame_.is_dead[fault.rail]) return Fault::Owner::kRail;
    if (fault.proven == Side::kUnknown) return Fault::Owner::kLink;
    const bool is_first = fault.proven == Side::kFirst;
    (is_first ? first : second).has_cause = true;
    return is_first ? Fault::Owner::kFirst : Fault::Owner::kSecond;
  }

  void count_untested() {
    outcome_.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
      if (states_[cell] != State::kUntested || blame_.is_dead[rail]) return;
      if (!end(first, rail).has_cause && !end(second, rail).has_cause) ++blame_.untested;
    });
  }

  End& end(std::size_t member, unsigned rail) { return blame_.ends[member * outcome_.rails + rail]; }
  const Outcome& outcome_;
  std::size_t count_;  // number of members
  std::size_t order_ = 0;
  std::vector<State> states_;  // state of each cell
  Blame blame_;
};

}  // namespace

Blame find_blame(const Outcome& outcome) {
  return BlameFinder(outcome).find();
}

}  // namespace init::ping
