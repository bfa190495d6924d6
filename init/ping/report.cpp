#include "init/ping/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "base/options.hpp"
#include "base/text.hpp"
#include "init/ping/describe.hpp"
#include "init/ping/totals.hpp"

namespace init::ping {
namespace {

constexpr std::size_t kMostCauses = 50;
constexpr std::size_t kMostSlow = 5;
constexpr std::size_t kMostGoodMembers = 8;  // a good outcome of more members prints no matrix
constexpr std::size_t kMostColumns = 64;     // most members in a matrix of 80 columns
constexpr std::size_t kMostRows = 32;
constexpr std::size_t kWideColumns = 32;  // up to here a blank separates two cells

std::string causes_text(const std::vector<Cause>& causes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(causes.size(), kMostCauses); ++i) {
    text += base::help_lines({}, one_line(causes[i].message), 2);
    if (!causes[i].remedy.empty()) text += base::help_lines({}, "remedy: " + one_line(causes[i].remedy), 4);
  }
  if (causes.size() > kMostCauses) text += fmt::format("  and {} more\n", causes.size() - kMostCauses);
  return text;
}

std::string legend_text(const std::set<Layer>& layers) {
  std::vector<std::string> parts;
  parts.reserve(layers.size());
  for (const Layer layer : layers)
    parts.push_back(fmt::format("{} {}", about(layer).letter, about(layer).name));
  return base::help_lines({}, base::join(parts, ", "), 2);
}

// Returns the ranks of all members above their columns, one digit per line.
std::string column_heads(const Outcome& outcome, std::size_t width, std::string_view gap) {
  std::string text;
  for (std::size_t digit = 0; digit < width; ++digit) {
    std::string line(width + 3, ' ');
    for (const Member& member : outcome.members)
      line += fmt::format("{:>{}}", member.rank, width)[digit] + std::string(gap);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string matrix_text(const Outcome& outcome) {
  const std::size_t members = outcome.members.size();
  const std::size_t width = std::to_string(outcome.members.back().rank).size();
  const std::string_view gap = members <= kWideColumns ? " " : "";
  std::set<Layer> layers;
  std::string text = column_heads(outcome, width, gap);
  for (std::size_t row = 0; row < members; ++row) {
    std::string line = fmt::format("  {:>{}} ", outcome.members[row].rank, width);
    for (std::size_t column = 0; column < members; ++column) {
      char letter = ' ';
      if (row != column) {
        const Layer layer = worst_rail(outcome, row, column);
        layers.insert(layer);
        letter = about(layer).letter;
      }
      line += letter + std::string(gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + legend_text(layers);
}

// Returns the line of one member: the ranks by the layer of the worst rail.
std::string row_text(const Outcome& outcome, std::size_t row, std::set<Layer>& layers) {
  std::map<Layer, std::vector<std::size_t>> by_layer;
  for (std::size_t column = 0; column < outcome.members.size(); ++column) {
    if (column == row || !meet(outcome, row, column)) continue;
    const Layer layer = worst_rail(outcome, row, column);
    if (layer != Layer::kGood) by_layer[layer].push_back(column);
  }
  std::vector<std::string> parts;
  for (const auto& [layer, columns] : by_layer) {
    layers.insert(layer);
    parts.push_back(fmt::format("{} {}", about(layer).letter, name_members(outcome, columns)));
  }
  return base::help_lines(fmt::format("  rank {}:", outcome.members[row].rank), base::join(parts, "; "), 13);
}

// Returns the number of failed tests of each member.
std::vector<std::size_t> failures_of(const Outcome& outcome) {
  std::vector<std::size_t> failures(outcome.members.size());
  outcome.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t) {
    const Layer layer = result_of(outcome, first, second, rail);
    if (layer == Layer::kGood || layer == Layer::kUntested) return;
    ++failures[first];
    ++failures[second];
  });
  return failures;
}

// Returns the rows of the members with the most failures, by rank.
std::string rows_text(const Outcome& outcome, const std::vector<std::size_t>& failures) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (failures[i] > 0) rows.push_back(i);
  }
  if (rows.empty()) return "";
  const std::size_t all = rows.size();
  std::ranges::stable_sort(rows, std::greater{}, [&](std::size_t row) { return failures[row]; });
  rows.resize(std::min(all, kMostRows));
  std::ranges::sort(rows);
  std::set<Layer> layers;
  std::string text = "ranks with failures, and the ranks that they do not reach on each rail:\n";
  for (const std::size_t row : rows)
    text += row_text(outcome, row, layers);
  if (all > kMostRows) text += fmt::format("  and {} more with fewer failures\n", all - kMostRows);
  return text + legend_text(layers);
}

// Returns the number of members by their failures: 0, 1, 2-3, 4-7 and so on.
std::string histogram_text(const std::vector<std::size_t>& failures) {
  constexpr std::size_t kBar = 40;
  std::map<std::size_t, std::size_t> counts;
  for (const std::size_t count : failures)
    ++counts[static_cast<std::size_t>(std::bit_width(count))];
  std::string text = "failures per rank:\n";
  for (const auto& [bits, count] : counts) {
    const std::size_t low = bits == 0 ? 0 : std::size_t{1} << (bits - 1);
    const std::string range = bits < 2 ? std::to_string(low) : fmt::format("{}-{}", low, 2 * low - 1);
    text += fmt::format("  {:>11}  {:<10}  {}\n", range, count_of(count, "rank"),
                        std::string(std::max<std::size_t>(count * kBar / failures.size(), 1), '#'));
  }
  return text;
}

std::string cells_text(const Outcome& outcome, bool good) {
  const std::size_t members = outcome.members.size();
  if (outcome.cells.empty() || (good && members > kMostGoodMembers)) return "";
  if (members <= kMostColumns) return matrix_text(outcome);
  const std::vector<std::size_t> failures = failures_of(outcome);
  return rows_text(outcome, failures) + histogram_text(failures);
}

std::string bandwidth_text(const Outcome& outcome) {
  if (outcome.gbps.empty()) return "";
  const double median = static_cast<double>(median_gbps(outcome));
  std::vector<SlowPair> slow = find_slow_pairs(outcome);
  std::string text = fmt::format("bandwidth: median {:.1f} Gb/s, {} below {:.0f} % of it\n", median,
                                 count_of(slow.size(), "pair"), static_cast<double>(kSlow) * 100);
  std::ranges::stable_sort(slow, {}, &SlowPair::gbps);
  for (std::size_t i = 0; i < std::min(slow.size(), kMostSlow); ++i) {
    text += base::help_lines(
        {},
        fmt::format("{:.1f} Gb/s: {} and {}, rail {}", static_cast<double>(slow[i].gbps),
                    name_of(outcome.members[slow[i].first]), name_of(outcome.members[slow[i].second]), slow[i].rail),
        2);
  }
  return text;
}

}  // namespace

std::string text_report(const Outcome& outcome, const std::vector<Cause>& causes) {
  std::string text = base::wrapped("rdma-ping: " + summary_of(outcome, causes)) + causes_text(causes);
  for (const std::string& line : outcome.strangers)
    text += base::help_lines({}, one_line(line), 2);
  if (const std::string coverage = coverage_text(outcome); !coverage.empty())
    text += base::help_lines({}, coverage + "; --pairs all tests every pair", 2);
  text += cells_text(outcome, is_good(outcome, causes)) + bandwidth_text(outcome);
  if (outcome.crossed_tested > 0) {
    text += fmt::format("crossed rails: {}, {} reach: information only\n", count_of(outcome.crossed_tested, "test"),
                        outcome.crossed_tested - outcome.crossed_failed());
    const std::string_view remedy = remedy_of_crossed(outcome);
    if (!remedy.empty()) text += base::help_lines({}, fmt::format("remedy: {}", remedy), 4);
  }
  return text;
}

}  // namespace init::ping
