#include "init/gid_index.hpp"

#include <algorithm>
#include <map>

namespace init {
namespace {

bool same_index(const std::vector<WantedGid>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const WantedGid& one) { return one.gid.index == wanted.front().gid.index; });
}

// The index that most ports want; the lowest on a tie.
unsigned commonest_index(const std::vector<WantedGid>& wanted) {
  std::map<unsigned, std::size_t> votes;
  for (const WantedGid& one : wanted)
    ++votes[one.gid.index];
  return std::max_element(votes.begin(), votes.end(),
                          [](const auto& left, const auto& right) { return left.second < right.second; })
      ->first;
}

}  // namespace

bool needs_whole_tables(const std::vector<WantedGid>& wanted, const nccl::Version& version) {
  // NCCL passes over whatever follows a global v2 GID, and the scan read as far as the wanted one. But old versions
  // fail on an unreadable type behind it, and a link-local GID is never final.
  return std::any_of(wanted.begin(), wanted.end(), [&](const WantedGid& one) {
    return !one.candidate->port->gids_complete &&
           (version < nccl::kToleratesUnreadable || one.gid.rank == GidRank::kLinkLocal);
  });
}

std::vector<std::size_t> wrong_ports(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules) {
  std::vector<std::size_t> wrong;
  for (const WantedGid& one : wanted) {
    const nccl::GidChoice choice = nccl::choose_gid(*one.candidate->port, rules);
    if (choice.index != one.gid.index || choice.uncertain) wrong.push_back(one.port);
  }
  return wrong;
}

IndexPlan plan_nccl_choice(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range) {
  IndexPlan plan;
  plan.needs_tables = needs_whole_tables(wanted, rules.version);
  plan.wrong = wrong_ports(wanted, rules);
  if (plan.wrong.empty() || !may_set_range) return plan;
  // The narrowest range that holds all wanted addresses keeps the most others out.
  std::vector<fabric::Address> addresses;
  addresses.reserve(wanted.size());
  for (const WantedGid& one : wanted)
    addresses.push_back(one.gid.gid);
  nccl::GidRules ranged = rules;
  ranged.range = fabric::common_prefix(addresses);
  auto wrong = wrong_ports(wanted, ranged);
  if (ranged.range && wrong.size() < plan.wrong.size()) {
    plan.wrong = std::move(wrong);
    plan.range = ranged.range;
  }
  return plan;
}

IndexPlan plan_index(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range) {
  if (wanted.empty()) return {};
  if (same_index(wanted)) {
    IndexPlan plan;
    plan.index = wanted.front().gid.index;
    return plan;
  }
  IndexPlan plan = plan_nccl_choice(wanted, rules, may_set_range);
  if (plan.wrong.empty()) return plan;

  // Some ports cannot be right by NCCL's own choice. An explicit index is right for those that share it, in every
  // version of NCCL; take it if it serves at least as many.
  const unsigned index = commonest_index(wanted);
  std::vector<std::size_t> others;
  for (const WantedGid& one : wanted) {
    if (one.gid.index != index) others.push_back(one.port);
  }
  if (others.size() <= plan.wrong.size()) {
    plan.index = index;
    plan.range.reset();
    plan.wrong = std::move(others);
  }
  return plan;
}

}  // namespace init
