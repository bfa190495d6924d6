#include "init/ping/evidence.hpp"

#include <algorithm>
#include <utility>

namespace init::ping {

Evidence::Evidence(const Outcome& outcome)
    : outcome_(outcome), ends_(members() * rails()), faults_(rails()), next_(ends_.size()) {
  for (std::size_t i = 0; i < next_.size(); ++i)
    next_[i] = static_cast<std::uint32_t>(i);
  for (std::size_t member = 0; member < members(); ++member) {
    const Member& one = outcome_.members[member];
    for (unsigned rail = 0; rail < rails(); ++rail) {
      const bool is_bad = rail >= one.rails.size() || one.rails[rail].problem.failed();
      end(member, rail).has_problem = end(member, rail).has_cause = one.problem.failed() || is_bad;
    }
  }
  read_failures();
  read_cells();
}

void Evidence::add_fault(const Fault& fault) {
  ++end(fault.first, fault.rail).failed;
  ++end(fault.second, fault.rail).failed;
  faults_[fault.rail].push_back(fault);
}

void Evidence::read_failures() {
  std::vector<std::pair<std::size_t, const FailedPair*>> failures;
  failures.reserve(outcome_.failures.size());
  for (const FailedPair& failed : outcome_.failures)
    failures.emplace_back(outcome_.cell_of(failed.first, failed.second, failed.first_rail), &failed);
  std::ranges::stable_sort(failures, {}, [](const auto& one) { return one.first; });
  for (const auto& [cell, failed] : failures) {
    if (!reported_.empty() && reported_.back() == cell) continue;
    reported_.push_back(cell);
    add_fault({failed->first, failed->second, failed->first_rail, failed->failure.layer, failed->culprit,
               &failed->failure.detail});
  }
}

// A failed cell without an entry in `failures` is a failure as well. A missing cell is an untested one.
void Evidence::read_cells() {
  auto reported = reported_.begin();
  outcome_.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    if (reported != reported_.end() && *reported == cell) {
      ++reported;
      return;
    }
    const Layer layer = cell < outcome_.cells.size() ? outcome_.cells[cell] : Layer::kUntested;
    End& one = end(first, rail);
    End& other = end(second, rail);
    if (layer == Layer::kUntested) {
      ++one.untested;
      ++other.untested;
    } else if (layer != Layer::kGood) {
      add_fault({first, second, rail, layer});
    } else {
      ++one.good;
      ++other.good;
      one.reached = second;
      other.reached = first;
      next_[group_of(first, rail)] = static_cast<std::uint32_t>(group_of(second, rail));
    }
  });
}

std::vector<Fault*> Evidence::open_faults(unsigned rail) {
  std::vector<Fault*> open;
  for (Fault& fault : faults_[rail]) {
    if (!fault.is_explained) open.push_back(&fault);
  }
  return open;
}

std::size_t Evidence::group_of(std::size_t member, unsigned rail) const {
  std::uint32_t at = next_[member * rails() + rail];
  while (next_[at] != at)
    at = next_[at] = next_[next_[at]];
  next_[member * rails() + rail] = at;
  return at;
}

bool Evidence::is_good(std::size_t one, std::size_t other, unsigned rail) const {
  const auto [first, second] = std::minmax(one, other);
  const std::size_t cell = outcome_.cell_of(first, second, rail);
  return cell < outcome_.cells.size() && outcome_.cells[cell] == Layer::kGood &&
         !std::ranges::binary_search(reported_, cell);
}

std::size_t Evidence::count_untested() const {
  std::size_t untested = 0;
  auto reported = reported_.begin();
  outcome_.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    if (reported != reported_.end() && *reported == cell) {
      ++reported;
      return;
    }
    const bool has_result = cell < outcome_.cells.size() && outcome_.cells[cell] != Layer::kUntested;
    if (!has_result && !end(first, rail).has_cause && !end(second, rail).has_cause) ++untested;
  });
  return untested;
}

}  // namespace init::ping
