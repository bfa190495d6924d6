#include "init/ping/compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"

namespace init::ping {
namespace {

// Returns the ports by kind: "2 x RoCE 400 Gb/s"; "no HCA port that NCCL uses" if there are none.
std::string describe(const Member& member) {
  std::map<std::string, unsigned> kinds;
  for (const Rail& rail : member.rails)
    ++kinds[fmt::format("{} {} Gb/s", rail.infiniband ? "InfiniBand" : "RoCE", rail.rate_mbps / 1000)];
  std::vector<std::string> parts;
  parts.reserve(kinds.size());
  for (const auto& [kind, count] : kinds)
    parts.push_back(fmt::format("{} x {}", count, kind));
  return parts.empty() ? "no HCA port that NCCL uses" : base::join(parts, ", ");
}

}  // namespace

std::string name_of(const Member& member) {
  return fmt::format("rank {} ({})", member.rank, base::printable(member.host));
}

std::vector<std::string> compare_members(const std::vector<Member>& members) {
  std::map<std::string, std::size_t> counts;
  for (const Member& member : members)
    ++counts[describe(member)];
  std::vector<std::string> lines;
  if (counts.size() < 2) return lines;
  const auto usual = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  for (const Member& member : members) {
    const std::string own = describe(member);
    if (own == usual->first) continue;
    std::vector<std::string> unused;
    for (const std::string& port : member.unused)
      unused.push_back(base::one_line(port));
    lines.push_back(fmt::format("{} has {}, {} of {} ranks have {}{}{}", name_of(member), own, usual->second,
                                members.size(), usual->first,
                                unused.empty() ? "" : "; not used: ", base::join(unused, ", ")));
  }
  return lines;
}

}  // namespace init::ping
