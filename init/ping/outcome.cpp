#include "init/ping/outcome.hpp"

#include <algorithm>

namespace init::ping {
namespace {

constexpr auto kInOrder = [](const auto& one, const auto& other) {
  return one.second != other.second ? one.second < other.second : one.first < other.first;
};

}  // namespace

std::size_t Outcome::count_pairs() const {
  if (is_sparse()) return pairs.size();
  return members.empty() ? 0 : members.size() * (members.size() - 1) / 2;
}

std::size_t Outcome::cell_of(std::size_t first, std::size_t second, unsigned rail) const {
  if (!is_sparse()) return (second * (second - 1) / 2 + first) * rails + rail;
  const std::pair wanted(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second));
  const auto found = std::ranges::lower_bound(pairs, wanted, kInOrder);
  const auto at =
      static_cast<std::size_t>((found != pairs.end() && *found == wanted ? found : pairs.end()) - pairs.begin());
  return at * rails + rail;
}

void Outcome::add_pairs(const std::vector<std::pair<std::size_t, std::size_t>>& added) {
  Outcome before;
  before.rails = rails;
  before.pairs = std::move(pairs);
  before.cells = std::move(cells);
  before.gbps = std::move(gbps);
  pairs = before.pairs;
  for (const auto& [first, second] : added)
    pairs.emplace_back(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second));
  std::ranges::sort(pairs, kInOrder);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  cells.assign(pairs.size() * rails, Layer::kUntested);
  if (!before.gbps.empty()) gbps.assign(cells.size(), 0);
  before.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    const std::size_t now = cell_of(first, second, rail);
    if (cell < before.cells.size()) cells[now] = before.cells[cell];
    if (cell < before.gbps.size()) gbps[now] = before.gbps[cell];
  });
}

}  // namespace init::ping
