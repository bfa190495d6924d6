#include "init/ping/compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "base/text.hpp"
#include "init/ping/describe.hpp"

namespace init::ping {
namespace {

// Returns the ports by kind: "2 x RoCE 400 Gb/s"; "no HCA port that NCCL uses" if there are none.
std::string ports_of(const Member& member) {
  std::map<std::string, unsigned> kinds;
  for (const Rail& rail : member.rails)
    ++kinds[fmt::format("{} {} Gb/s", rail.infiniband ? "InfiniBand" : "RoCE", rail.rate_mbps / 1000)];
  std::vector<std::string> parts;
  parts.reserve(kinds.size());
  for (const auto& [kind, count] : kinds)
    parts.push_back(fmt::format("{} x {}", count, kind));
  return parts.empty() ? "no HCA port that NCCL uses" : base::join(parts, ", ");
}

// Members with the same ports.
struct Alike {
  std::size_t members = 0;
  std::size_t ports = 0;   // number of ports of each member
  std::uint64_t mbps = 0;  // sum of the ports of a member
};

}  // namespace

std::vector<std::string> compare_members(const std::vector<Member>& members) {
  std::map<std::string, Alike> kinds;
  for (const Member& member : members) {
    Alike& kind = kinds[ports_of(member)];
    ++kind.members;
    kind.ports = member.rails.size();
    kind.mbps = 0;
    for (const Rail& rail : member.rails)
      kind.mbps += rail.rate_mbps;
  }
  std::vector<std::string> lines;
  if (kinds.size() < 2) return lines;
  const auto rank_of = [](const auto& entry) {
    return std::tuple(entry.second.members, entry.second.ports, entry.second.mbps);
  };
  const auto usual = std::ranges::max_element(kinds, {}, rank_of);
  for (const Member& member : members) {
    const std::string own = ports_of(member);
    if (own == usual->first) continue;
    std::vector<std::string> unused;
    for (const std::string& port : member.unused)
      unused.push_back(base::one_line(port));
    const std::size_t count = usual->second.members;
    lines.push_back(fmt::format("{} has {}, {} of {} ranks {} {}{}{}", name_of(member), own, count, members.size(),
                                count == 1 ? "has" : "have", usual->first,
                                unused.empty() ? "" : "; not used: ", base::join(unused, ", ")));
  }
  return lines;
}

}  // namespace init::ping
