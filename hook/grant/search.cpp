#include "hook/grant/search.hpp"

#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "base/warnings.hpp"
#include "fabric/kept_node.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/call.hpp"
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
  explicit Search(const ForeseeInput& input) : input_(input) {}

  Result<ForeseenPlan> find(const Grant* bound, const BookFound& book) {
    const bool is_ranked = TRY(survey());
    if (is_ranked && bound)
      if (auto found = TRY(decide_bound(*bound))) return *std::move(found);
    while (is_ranked && !is_over())
      if (auto found = TRY(attempt(book))) return *std::move(found);
    return decide_among_all(is_ranked ? nullptr : bound, book);
  }

 private:
  // Reads the facts that the ranking needs. Returns false if the request cannot be ranked: it has no count, or the list
  // of HCAs is not complete.
  Result<bool> survey() {
    const Request& request = *input_.requesting.request;
    const auto count = count_of(request);
    if (!count || input_.node.snapshot) return false;
    auto granted = hcas_of_granted_nodes(request, input_.node.root);
    if (!granted) return false;
    granted_ = *std::move(granted);
    const auto facts = ranking_facts(request, input_.requesting.admin);
    survey_ = read_survey(facts);
    if (survey_.hcas.size() <= *count || !was_read(survey_, fabric::Unread::Part::kHcas)) return false;
    const bool may_have_moved = input_.owner.netns && (!input_.requesting.request->granted_nodes.empty() ||
                                                       TRY(has_rails(input_.node.ledger, input_.owner)));
    if (may_have_moved) {
      with_moved_ = survey_;
      TRY_VOID(add_moved_hcas(input_, *with_moved_));
    }
    TRY_VOID(note_away(with_moved_ ? *with_moved_ : survey_));
    return true;
  }

  // With a ledger, uses the links that an earlier call has noted there, and notes those that it reads. A call that only
  // shows its decision notes none.
  fabric::Inventory read_survey(const fabric::HcaFacts& facts) {
    const std::string& root = input_.node.root;
    if (input_.node.kept) return input_.node.kept->survey(root, facts, facts.place);
    if (!input_.ledger || !root.empty()) return fabric::survey_node(root, facts, facts.place);
    links_.emplace(input_.ledger->noted_links());
    return fabric::survey_node(root, facts, facts.place, &*links_);
  }

  // Decides among the HCAs of `bound`; nullopt: they do not suffice.
  Result<std::optional<ForeseenPlan>> decide_bound(const Grant& bound) {
    Names names;
    for (const auto& [name, units] : units_of(bound.hcas))
      if (units > 0) names.push_back(name);
    if (names.size() < *count_of(*input_.requesting.request)) return std::optional<ForeseenPlan>();
    auto inventory = TRY(read(names, false));
    auto plan = foresee_bound(input_, inventory, bound, &names);
    if (!plan || !*plan) {
      put_back(inventory);
      return std::optional<ForeseenPlan>();
    }
    return std::optional(ForeseenPlan{.plan = **std::move(plan), .inventory = std::move(inventory)});
  }

  // Returns nullopt if another attempt is needed, or is_over().
  Result<std::optional<ForeseenPlan>> attempt(const BookFound& book) {
    auto grant = input_.ledger ? TRY(input_.ledger->find(input_.owner.key)) : std::nullopt;
    const auto own = grant && !grant->stale ? std::move(grant->hcas)
                                            : std::vector<PlannedHca>();  // the HCAs that the owner holds now
    const auto chosen = choose(own);
    ++attempts_;
    is_exhausted_ = !chosen;
    if (!chosen) return std::optional<ForeseenPlan>();
    Names unread_pools;
    for (const NodeHca* hca : node_->by_rail())
      if (hca->pool_unread) add_once(pool_warning(*hca), unread_pools);
    auto inventory = TRY(read(*chosen, !own.empty()));
    ForeseenPlan found = TRY(about(FailureReason::kRefused, foresee(input_, inventory, &*chosen)));
    found.inventory = std::move(inventory);
    if (!found.unavailable.empty()) {
      note_unavailable(found);
      put_back(found.inventory);
      return std::optional<ForeseenPlan>();
    }
    if (found.locks) found.locks->expect_own(own);
    auto booked = about(FailureReason::kRefused, book(found));
    if (!booked && booked.error().code == ESTALE) {
      ++changes_;
      put_back(found.inventory);
      return std::optional<ForeseenPlan>();
    }
    TRY_VOID(std::move(booked));
    found.locks.reset();
    if (links_) found.links = links_->text();
    append_once(unread_pools, found.plan.warnings);
    append_once(skipped_, found.plan.warnings);
    return std::optional(std::move(found));
  }

  // bound: the grant whose HCAs come first; may be nullptr.
  Result<ForeseenPlan> decide_among_all(const Grant* bound, const BookFound& book) {
    auto inventory = TRY(read_node_for(input_.requesting, input_.node, input_.variables));
    TRY_VOID(add_moved_hcas(input_, inventory));
    TRY_VOID(note_away(inventory));
    if (input_.call) input_.call->timing.step("read");
    if (bound) {
      if (auto plan = TRY(about(FailureReason::kRefused, foresee_bound(input_, inventory, *bound))))
        return ForeseenPlan{.plan = *std::move(plan), .inventory = std::move(inventory)};
    }
    ForeseenPlan found = TRY(about(FailureReason::kRefused, foresee(input_, inventory)));
    found.inventory = std::move(inventory);
    TRY_VOID(about(FailureReason::kRefused, book(found)));
    found.locks.reset();
    return found;
  }

  bool is_over() const { return is_exhausted_ || losses_ + changes_ == kMostConflicts || lost_.size() >= kMostLost; }

  // Returns the node and the HCAs in the owner's network namespace.
  const fabric::Inventory& ranked() const { return with_moved_ ? *with_moved_ : survey_; }

  // Returns the name under which the ledger books an HCA of ranked(); nullptr: its device is unknown. Looks it up only
  // for the HCAs that the ranking reaches.
  const std::string* booked_under(const fabric::Hca& hca) {
    if (looked_up_.insert(hca.name).second) add_device(hca, ranked(), known_);
    return known_.booked_under(hca.name);
  }

  // Returns the units of these HCAs by their present names.
  std::map<std::string, unsigned> units_of(const std::vector<PlannedHca>& hcas) {
    std::map<std::string, unsigned> units;
    if (hcas.empty()) return units;
    for (const fabric::Hca& hca : ranked().hcas) {
      const std::string* const key = booked_under(hca);
      for (const PlannedHca& held : hcas)
        if (key && booked_as(held) == *key) units[hca.name] = held.held_only ? 0 : held.units;
    }
    return units;
  }

  std::optional<Names> choose(const std::vector<PlannedHca>& own) {
    if (!node_) node_.emplace(ranked(), input_.requesting.admin);
    const auto is_active = [&](const std::string& hca) {
      if (!states_) states_.emplace(input_.node.root);
      const auto known = active_.find(hca);
      return known != active_.end() ? known->second : active_.emplace(hca, states_->has_active(hca)).first->second;
    };
    return rank({.inventory = ranked(),
                 .node = *node_,
                 .request = *input_.requesting.request,
                 .config = input_.requesting.admin,
                 .holding = [&](const std::string& hca, unsigned most) { return look_up(hca, most); },
                 .is_active = is_active,
                 .own = units_of(own),
                 .granted = granted_,
                 .lost = lost_,
                 .losses = losses_,
                 .turn = losses_ == 0 ? 0 : turn_of(attempts_)});
  }

  // Looks up an HCA in the index. An HCA that looked held is not looked up again in this call.
  Holding look_up(const std::string& hca, unsigned most) {
    Holding holding;
    const fabric::Hca* const found = find_hca(ranked(), hca);
    const std::string* const key = found ? booked_under(*found) : nullptr;
    if (!key || held_.contains(hca)) {
      holding.exclusive_owner = "?";
    } else if (input_.ledger) {
      holding = input_.ledger->glance(*key, input_.owner.key, most);
      if (holding.exclusive_owner || (most > 0 && holding.others >= most)) held_.insert(hca);
    }
    return holding;
  }

  // Reads the chosen HCAs. has_own: the owner holds HCAs, so another container of its pod may have moved them since the
  // survey. If they looked missing, the owner would get more HCAs. The caller calls put_back() before another attempt.
  Result<fabric::Inventory> read(const Names& chosen, bool has_own) {
    Names names;
    for (const Names& some : {chosen, granted_}) {
      for (const std::string& name : some)
        if (find_hca(survey_, name)) add_once(name, names);
    }
    fabric::Inventory copy;
    if (with_moved_) copy = survey_;
    fabric::Inventory& others = with_moved_ ? copy : survey_;
    auto options = TRY(options_for(input_.requesting, input_.node, input_.variables, std::move(names)));
    auto inventory = TRY(read_some(input_.node, std::move(options), others));
    if (with_moved_ || has_own) TRY_VOID(add_moved_hcas(input_, inventory));
    TRY_VOID(note_away(inventory));
    if (input_.call) input_.call->timing.step("read");
    return inventory;
  }

  // Without a ledger all HCAs count as free.
  Result<void> note_away(fabric::Inventory& inventory) const {
    if (!input_.ledger || !counts_all_hcas(*input_.requesting.request, input_.requesting.admin, inventory)) return {};
    TRY_VOID(note_away_hcas(input_.node, input_.ledger, inventory));
    const auto unnamed = std::ranges::find(inventory.away, "", &fabric::Hca::name);
    if (unnamed == inventory.away.end() || !counts_names(*input_.requesting.request, input_.requesting.admin))
      return {};
    return Error{
        fmt::format("the numbers of HCAs are not certain: a container may have the HCA of `{}`, and its entry in "
                    "the ledger cannot be read",
                    *unnamed->pci),
        EBADMSG, "run `rdma-hook recover`", FailureReason::kState};
  }

  // Returns to survey_ the HCAs that read() took from it.
  void put_back(fabric::Inventory& inventory) {
    node_.reset();  // it has pointers to the HCAs
    if (!with_moved_) survey_.hcas = std::move(inventory.hcas);
  }

  void note_unavailable(const ForeseenPlan& found) {
    losses_ += found.lost_to_others ? 1 : 0;
    for (const std::string& name : found.unavailable) {
      lost_.insert(name);
      const fabric::Hca* hca = find_hca(found.inventory, name);
      if (hca && !hca->uverbs) add_once(no_node_warning(name), skipped_);
    }
  }

  const ForeseeInput& input_;
  Names granted_;
  fabric::Inventory survey_;  // the HCAs of the node; read() takes them, put_back() returns them
  std::optional<fabric::rdma_sysfs::KnownLinks> links_;
  // The node and the HCAs in the owner's network namespace; nullopt: there are none in that namespace.
  std::optional<fabric::Inventory> with_moved_;
  std::optional<NodeMap> node_;  // pools and rails of the HCAs in ranked()
  KnownDevices known_;           // devices of the HCAs in looked_up_
  std::set<std::string> looked_up_;
  std::optional<fabric::PortStates> states_;
  std::map<std::string, bool> active_;
  std::set<std::string> held_;
  std::set<std::string> lost_;
  Names skipped_;  // warnings about HCAs that were skipped
  unsigned losses_ = 0;
  unsigned attempts_ = 0;
  unsigned changes_ = 0;  // attempts that failed because the owner's grant changed
  bool is_exhausted_ = false;
};

}  // namespace

Result<ForeseenPlan> find_plan(const ForeseeInput& input, const Grant* bound, const BookFound& book) {
  return Search(input).find(bound, book);
}

}  // namespace hook
