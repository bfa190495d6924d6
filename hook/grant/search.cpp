#include "hook/grant/search.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "base/warnings.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/node_needs.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/rank.hpp"

namespace hook {
namespace {

using Names = std::vector<std::string>;

// Returns a number that differs between calls that run at once, and in each attempt of a call. The multiplier is that
// of Knuth's multiplicative hash: the numbers of consecutive PIDs are far apart.
unsigned turn_of(unsigned attempt) {
  return (static_cast<unsigned>(::getpid()) + attempt) * 2654435761U >> 8U;
}

// The attempts of one call.
class Search {
 public:
  // Returns nullopt if the request cannot be ranked: it has no count, or the list of HCAs is not complete.
  static Result<std::optional<Search>> begin(const ForeseeInput& input, Names& warnings, Timing& timing) {
    const Request& request = *input.requesting.request;
    const auto count = count_of(request);
    if (!count || input.node.snapshot) return std::optional<Search>();
    auto given = hcas_of_given_nodes(request, input.node.root);
    if (!given) return std::optional<Search>();
    const auto facts = ranking_facts(request, input.requesting.admin);
    auto survey = fabric::survey_node(input.node.root, facts, facts.place);
    if (survey.hcas.size() <= *count || !was_read(survey, fabric::Unread::Part::kHcas)) return std::optional<Search>();
    return std::optional(TRY(make(input, *std::move(given), std::move(survey), warnings, timing)));
  }

  // Returns nullopt if another attempt is needed, or is_over().
  Result<std::optional<Found>> attempt(Names& warnings, const BookFound& book) {
    const auto own = TRY(own_hcas());
    const auto chosen = choose(own);
    ++attempts_;
    is_exhausted_ = !chosen;
    if (!chosen) return std::optional<Found>();
    Found found{TRY(read(*chosen, warnings)), {}};
    found.foreseen = TRY(about(FailureReason::kRefused, foresee(input_, found.inventory, &*chosen)));
    if (!found.foreseen.unavailable.empty()) {
      give_up(found);
      return std::optional<Found>();
    }
    if (found.foreseen.locks) found.foreseen.locks->expect_own(own);
    auto booked = about(FailureReason::kRefused, book(found.inventory, found.foreseen));
    if (!booked && booked.error().code == ESTALE) {
      ++changes_;
      return std::optional<Found>();
    }
    TRY_VOID(std::move(booked));
    found.foreseen.locks.reset();
    append_once(skipped_, found.foreseen.plan.warnings);
    return std::optional(std::move(found));
  }

  // Decides among the HCAs of `bound`; nullopt: they do not suffice.
  Result<std::optional<Found>> decide_bound(const Grant& bound, Names& warnings) {
    Names names;
    for (const auto& [name, units] : units_of(bound.hcas))
      if (units > 0) names.push_back(name);
    if (names.size() < *count_of(*input_.requesting.request)) return std::optional<Found>();
    Found found{TRY(read(names, warnings)), {}};
    auto plan = foresee_bound(input_, found.inventory, bound, &names);
    if (!plan || !*plan) return std::optional<Found>();
    found.foreseen.plan = **std::move(plan);
    return std::optional(std::move(found));
  }

  bool is_over() const { return is_exhausted_ || losses_ + changes_ == kMostConflicts || lost_.size() >= kMostLost; }

 private:
  Search(const ForeseeInput& input, Names given, fabric::Inventory survey, Timing& timing)
      : input_(input),
        timing_(timing),
        given_(std::move(given)),
        survey_(std::move(survey)),
        states_(input.node.root) {}

  static Result<Search> make(const ForeseeInput& input, Names given, fabric::Inventory survey, Names& warnings,
                             Timing& timing) {
    Search search(input, std::move(given), std::move(survey), timing);
    search.ranked_ = search.survey_;
    TRY_VOID(add_moved_hcas(input, warnings, search.ranked_));
    Names names;
    for (const fabric::Hca& hca : search.ranked_.hcas)
      names.push_back(hca.name);
    search.known_ = devices_of(names, search.ranked_, input.node.root);
    return search;
  }

  // Returns the HCAs that the owner holds now.
  Result<std::vector<PlannedHca>> own_hcas() const {
    auto grant = input_.ledger ? TRY(input_.ledger->find(input_.owner.key)) : std::nullopt;
    return grant && !grant->stale ? std::move(grant->hcas) : std::vector<PlannedHca>();
  }

  // Returns the units of these HCAs by their present names.
  std::map<std::string, unsigned> units_of(const std::vector<PlannedHca>& hcas) const {
    std::map<std::string, unsigned> units;
    for (const fabric::Hca& hca : ranked_.hcas) {
      const std::string* const key = known_.booked_under(hca.name);
      for (const PlannedHca& held : hcas)
        if (key && booked_as(held) == *key) units[hca.name] = held.held_only ? 0 : held.units;
    }
    return units;
  }

  std::optional<Names> choose(const std::vector<PlannedHca>& own) {
    const Glance glance{.holding = [&](const std::string& hca, unsigned most) { return look_up(hca, most); },
                        .is_active =
                            [&](const std::string& hca) {
                              const auto known = active_.find(hca);
                              if (known != active_.end()) return known->second;
                              return active_.emplace(hca, states_.has_active(hca)).first->second;
                            }};
    return rank({.inventory = ranked_,
                 .request = *input_.requesting.request,
                 .config = input_.requesting.admin,
                 .own = units_of(own),
                 .given = given_,
                 .lost = lost_,
                 .losses = losses_,
                 .turn = losses_ == 0 ? 0 : turn_of(attempts_)},
                glance, skipped_);
  }

  // Looks up an HCA in the index. An HCA that looked held is not looked up again in this call.
  Holding look_up(const std::string& hca, unsigned most) {
    Holding holding;
    const std::string* const key = known_.booked_under(hca);
    if (!key || held_.contains(hca)) {
      holding.exclusive_owner = "?";
    } else if (input_.ledger) {
      holding = input_.ledger->glance(*key, input_.owner.key, most);
      if (holding.exclusive_owner || (most > 0 && holding.others >= most)) held_.insert(hca);
    }
    return holding;
  }

  Result<fabric::Inventory> read(const Names& chosen, Names& warnings) {
    Names names;
    for (const Names& some : {chosen, given_}) {
      for (const std::string& name : some)
        if (find_hca(survey_, name)) add_once(name, names);
    }
    auto inventory = TRY(read_some_for(input_.requesting, input_.node, input_.variables, names, survey_));
    TRY_VOID(add_moved_hcas(input_, warnings, inventory));
    timing_.step("read");
    return inventory;
  }

  void give_up(const Found& found) {
    losses_ += found.foreseen.lost_to_others ? 1 : 0;
    for (const std::string& name : found.foreseen.unavailable) {
      lost_.insert(name);
      const fabric::Hca* hca = find_hca(found.inventory, name);
      if (hca && !hca->uverbs) add_once(no_node_warning(name), skipped_);
    }
  }

  const ForeseeInput& input_;
  Timing& timing_;
  Names given_;
  fabric::Inventory survey_;  // the node
  fabric::Inventory ranked_;  // the node and the HCAs in the owner's network namespace
  KnownDevices known_;
  fabric::PortStates states_;
  std::map<std::string, bool> active_;
  std::set<std::string> held_;
  std::set<std::string> lost_;
  Names skipped_;  // warnings about HCAs that were skipped
  unsigned losses_ = 0;
  unsigned attempts_ = 0;
  unsigned changes_ = 0;  // attempts that failed because the owner's grant changed
  bool is_exhausted_ = false;
};

Result<std::optional<Found>> find_by_rank(Search& search, Names& warnings, const BookFound& book) {
  while (!search.is_over()) {
    if (auto found = TRY(search.attempt(warnings, book))) return found;
  }
  return std::optional<Found>();
}

Result<Found> find_among(const ForeseeInput& input, fabric::Inventory inventory, const BookFound& book) {
  Found found{std::move(inventory), {}};
  found.foreseen = TRY(about(FailureReason::kRefused, foresee(input, found.inventory)));
  TRY_VOID(about(FailureReason::kRefused, book(found.inventory, found.foreseen)));
  found.foreseen.locks.reset();
  return found;
}

Result<Found> find_among_all(const ForeseeInput& input, Names& warnings, Timing& timing, const BookFound& book) {
  auto inventory = TRY(read_for(input, warnings));
  timing.step("read");
  return find_among(input, std::move(inventory), book);
}

}  // namespace

Result<Found> find_plan(const ForeseeInput& input, Names& warnings, Timing& timing, const BookFound& book) {
  if (auto search = TRY(Search::begin(input, warnings, timing))) {
    if (auto found = TRY(find_by_rank(*search, warnings, book))) return *std::move(found);
  }
  return find_among_all(input, warnings, timing, book);
}

Result<Found> find_bound_plan(const ForeseeInput& input, const Grant& bound, Names& warnings, Timing& timing,
                              const BookFound& book) {
  if (auto search = TRY(Search::begin(input, warnings, timing))) {
    if (auto found = TRY(search->decide_bound(bound, warnings))) return *std::move(found);
    if (auto found = TRY(find_by_rank(*search, warnings, book))) return *std::move(found);
    return find_among_all(input, warnings, timing, book);
  }
  auto inventory = TRY(read_for(input, warnings));
  timing.step("read");
  if (auto plan = TRY(about(FailureReason::kRefused, foresee_bound(input, inventory, bound))))
    return Found{std::move(inventory), {.plan = *std::move(plan), .locks = std::nullopt}};
  return find_among(input, std::move(inventory), book);
}

}  // namespace hook
