#include "init/ping/describe.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace init::ping {

std::string name_ranks(const std::vector<unsigned>& ranks) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    parts.push_back(std::to_string(ranks[i]));
  std::string last = std::move(parts.back());
  parts.pop_back();
  if (ranks.size() > kMost) {
    parts.push_back(std::move(last));
    last = fmt::format("{} more", ranks.size() - kMost);
  }
  return parts.empty() ? last : fmt::format("{} and {}", base::join(parts, ", "), last);
}

std::string name_members(const Outcome& outcome, const std::vector<std::size_t>& positions) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> ranges;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < positions.size() && ranges.size() < kMost;) {
    std::size_t end = i + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1)
      ++end;
    const unsigned first = outcome.members[positions[i]].rank;
    ranges.push_back(end == i + 1 ? std::to_string(first)
                                  : fmt::format("{}-{}", first, outcome.members[positions[end - 1]].rank));
    shown = i = end;
  }
  if (shown < positions.size()) ranges.push_back(fmt::format("and {} more", positions.size() - shown));
  return base::join(ranges, ", ");
}

std::string name_of(const Member& member) {
  return fmt::format("rank {} ({})", member.rank, base::printable(member.host));
}

std::string describe(const Member& member, unsigned rail) {
  if (rail >= member.rails.size()) return fmt::format("rail {}", rail);
  const Rail& one = member.rails[rail];
  const std::string netdev = one.netdev.empty() ? "no netdev" : "netdev " + base::printable(one.netdev);
  if (one.infiniband) return fmt::format("{}:{} (InfiniBand, {})", base::printable(one.device), one.port, netdev);
  return fmt::format("{}:{} ({}, GID index {} {})", base::printable(one.device), one.port, netdev, one.gid_index,
                     to_string(one.gid));
}

std::string describe(const Failure& failure) {
  const std::string_view layer = about(failure.layer).name;
  return failure.detail.empty() ? std::string(layer) : fmt::format("{}: {}", layer, base::one_line(failure.detail));
}

std::string count_of(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace init::ping
