#include "init/gid_index.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace init {
namespace {

using Range = std::optional<fabric::Cidr>;

// Returns true if NCCL may use the GID in place of the wanted one: it has the same rank and is in the requested range.
// If several GIDs have its address, only the one with the lowest index counts, because the scan of the table may have
// ended before the next one.
bool is_alternative(const WantedGid& one, const UsableGid& gid, const Range& range) {
  if (gid.rank != one.gid.rank || (range && !range->contains(gid.gid))) return false;
  const auto& gids = one.candidate->gids;
  return std::ranges::find(gids, gid.gid, &UsableGid::gid)->index == gid.index;
}

// Returns true if the port's GID at the index is the wanted one, or may replace it.
bool has_own_at(const WantedGid& one, unsigned index, const Range& range) {
  const auto is_at = [&](const UsableGid& gid) { return gid.index == index && is_alternative(one, gid, range); };
  return one.gid.index == index || std::ranges::any_of(one.candidate->gids, is_at);
}

// Returns true if the port uses a deprecated address at the index, and its wanted GID is not deprecated.
bool is_deprecated_at(const WantedGid& one, unsigned index) {
  const auto& gids = one.candidate->gids;
  const auto used = std::ranges::find(gids, index, &UsableGid::index);
  return !one.gid.deprecated && used != gids.end() && used->deprecated;
}

// Returns the index at which most ports have their wanted GID or one that may replace it. If two indices serve equally
// many ports, the index with fewer deprecated addresses wins, then the one that is wanted by more ports, then the lower
// one.
unsigned commonest_index(const std::vector<WantedGid>& wanted, const Range& range) {
  // One port more outweighs all other votes, and one deprecated address less outweighs all extra votes for wanted GIDs.
  const std::size_t better = wanted.size() + 1;
  const std::size_t vote = better * better;
  std::map<unsigned, std::size_t> votes;
  for (const WantedGid& one : wanted) {
    votes[one.gid.index] += vote + better + 1;
    for (const UsableGid& gid : one.candidate->gids) {
      if (gid.index == one.gid.index || !is_alternative(one, gid, range)) continue;
      votes[gid.index] += vote + (is_deprecated_at(one, gid.index) ? 0 : better);
    }
  }
  return std::ranges::max_element(votes, {}, [](const auto& vote_of) { return vote_of.second; })->first;
}

// An attempt accepts only the wanted GID, or any GID of the port with the rank of the wanted one.
enum class Aim { kWanted, kAnyOwn };

// Simulates NCCL's choice on every port.
IndexPlan simulate(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, Aim aim) {
  IndexPlan attempt;
  attempt.range = rules.range;
  for (const WantedGid& one : wanted) {
    const nccl::GidChoice choice = nccl::choose_gid(*one.candidate->port, rules);
    const bool is_wanted = choice.index == one.gid.index;
    const bool is_own = is_wanted || (aim == Aim::kAnyOwn && choice.index && has_own_at(one, *choice.index, {}));
    if (choice.uncertain || !is_own) {
      attempt.wrong.push_back(one.port);
    } else if (!is_wanted) {
      attempt.moved.emplace(one.port, *choice.index);
      attempt.deprecated += is_deprecated_at(one, *choice.index) ? 1 : 0;
    }
  }
  return attempt;
}

// Adds values of NCCL_IB_ADDR_RANGE to try. The first is the narrowest range of all wanted addresses, which excludes
// the most foreign addresses. Then follows the common prefix of each two neighbours among the ports' own addresses in
// sorted order: every larger group of addresses has the same prefix as one of these pairs. Then each address alone is a
// range. On a port without an address in the range, NCCL uses index 0, which may be right.
void add_ranges(const std::vector<WantedGid>& wanted, std::vector<Range>& ranges) {
  std::vector<fabric::Address> all;
  std::set<fabric::Address> own;
  for (const WantedGid& one : wanted) {
    all.push_back(one.gid.gid);
    own.insert(one.gid.gid);
    for (const UsableGid& gid : one.candidate->gids)
      if (gid.rank == one.gid.rank) own.insert(gid.gid);
  }
  const auto add = [&](const std::vector<fabric::Address>& addresses) {
    if (const Range range = fabric::common_prefix(addresses)) ranges.push_back(range);
  };
  add(all);
  for (auto address = own.begin(); address != own.end(); ++address) {
    if (const auto next = std::next(address); next != own.end()) add({*address, *next});
  }
  for (const fabric::Address& address : own)
    add({address});
}

bool is_any_incomplete(const std::vector<WantedGid>& wanted) {
  return std::ranges::any_of(wanted, [](const WantedGid& one) { return !one.candidate->port->gids_complete; });
}

}  // namespace

bool needs_whole_tables(const std::vector<WantedGid>& wanted, const nccl::Version& version) {
  // The scan has read each table up to the wanted GID. If the wanted GID is a global v2 GID, NCCL ignores the later
  // slots, but versions before 2.26 fail if the type of a later slot is unreadable. After a link-local GID, every
  // version of NCCL searches the later slots.
  return std::ranges::any_of(wanted, [&](const WantedGid& one) {
    return !one.candidate->port->gids_complete &&
           (version < nccl::kToleratesUnreadable || one.gid.rank == GidRank::kLinkLocal);
  });
}

std::vector<std::size_t> wrong_ports(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules) {
  return simulate(wanted, rules, Aim::kWanted).wrong;
}

IndexPlan plan_nccl_choice(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range) {
  IndexPlan plan = simulate(wanted, rules, Aim::kWanted);
  const bool is_right = plan.is_right();
  std::vector<Range> ranges = {rules.range};
  if (!is_right && may_set_range) add_ranges(wanted, ranges);
  // The first pass accepts only the wanted GIDs. The second pass also accepts other GIDs of the same port and rank.
  for (const Aim aim : {Aim::kWanted, Aim::kAnyOwn}) {
    for (const Range& range : ranges) {
      if (plan.is_right()) break;
      nccl::GidRules tried = rules;
      tried.range = range;
      IndexPlan attempt = simulate(wanted, tried, aim);
      if (attempt.is_better_than(plan)) plan = std::move(attempt);
    }
  }
  plan.needs_tables = needs_whole_tables(wanted, rules.version) || (!is_right && is_any_incomplete(wanted));
  plan.is_simulated = true;
  if (plan.range == rules.range) plan.range.reset();  // a range that the user has set already is not exported
  return plan;
}

IndexPlan share_index(const std::vector<WantedGid>& wanted, const std::optional<fabric::Cidr>& range) {
  IndexPlan shared;
  shared.index = wanted.empty() ? 0 : commonest_index(wanted, range);
  for (const WantedGid& one : wanted) {
    if (!has_own_at(one, *shared.index, range)) {
      shared.wrong.push_back(one.port);
    } else if (is_deprecated_at(one, *shared.index)) {
      ++shared.deprecated;
    }
  }
  return shared;
}

IndexPlan plan_index(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range) {
  if (wanted.empty()) return {};
  IndexPlan shared = share_index(wanted, rules.range);
  if (shared.is_right()) return shared;
  IndexPlan own = plan_nccl_choice(wanted, rules, may_set_range);
  // In every version of NCCL, a fixed index is right on the ports that share it. The fixed index is used if it is at
  // least as good as NCCL's own choice, unless that is right on all ports.
  if (own.is_right() || own.is_better_than(shared)) return own;
  shared.needs_tables = own.needs_tables;
  shared.is_simulated = true;
  return shared;
}

}  // namespace init
