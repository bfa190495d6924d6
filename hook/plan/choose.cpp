#include "hook/plan/choose.hpp"

#include <algorithm>
#include <utility>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "hook/plan/order.hpp"
#include "hook/request/parsers.hpp"

namespace hook {
namespace {

// Units of an HCA without a limit: the highest count of a request.
constexpr unsigned kNoBound = kMaxCount;

// Keeps the tighter bound and its reason.
void bound(Room& room, unsigned units, std::string why, bool held) {
  if (units < room.units) room = {units, std::move(why), held};
}

// Returns the present grants of an HCA; an HCA without grants has an empty Holding.
Holding holding_of(const std::string& hca, const Holdings& holdings) {
  const auto found = holdings.find(hca);
  return found == holdings.end() ? Holding{} : found->second;
}

std::string doubt_of(const Holding& holding) {
  return holding.doubtful.empty() ? "" : ", one of unknown state: " + holding.doubtful;
}

// Returns why other owners prevent the use of the HCA in this mode, "" if they do not.
std::string held_against(Mode mode, const Holding& holding) {
  // An exclusive owner excludes all modes, and any owner excludes mode exclusive.
  if (holding.exclusive_owner) return "is held by " + *holding.exclusive_owner;
  if (mode != Mode::kExclusive || holding.others == 0) return "";
  return fmt::format("is shared with {} other user{}{}", holding.others, holding.others == 1 ? "" : "s",
                     doubt_of(holding));
}

using Hcas = std::vector<const NodeHca*>;

// The terms of an HCA for this container, and the units that the container may have.
struct Offer {
  Terms terms;
  Room room;
};
using Offers = std::map<const NodeHca*, Offer>;

// Returns why the units of HCAs are limited: "mlx5_0 is held by container web-1, mlx5_3 is shared with 2 other users".
// HCAs without a limit are left out.
std::string obstacles(const Hcas& hcas, const Offers& offers) {
  std::vector<std::string> parts;
  for (const NodeHca* node : hcas) {
    const Room& room = offers.at(node).room;
    if (!room.why.empty()) parts.push_back(base::printable(node->name()) + " " + room.why);
  }
  return some_of(parts);
}

constexpr const char* kWhoHolds =
    "run `rdma-hook devices` to list the owners and `rdma-hook recover` to release stale "
    "grants";

// Returns the preference of an HCA. 0, the best: the container or its pod has a grant of it, so that a container that
// starts again keeps its HCAs. 1: linux.devices has its device node. 2: it has an ACTIVE port. 3: all other HCAs.
int tier(const NodeHca& node, const PlanInput& input) {
  const auto holding = input.holdings.find(node.name());
  if (holding != input.holdings.end() && holding->second.own_units > 0) return 0;
  if (std::ranges::find(input.among.granted, &node) != input.among.granted.end()) return 1;
  return node.is_active() ? 2 : 3;
}

// Sorts the HCAs by tier(), then by nearness to the container's GPUs. Equal HCAs keep their order.
Hcas by_preference(const Hcas& hcas, const PlanInput& input) {
  const auto gpus = gpus_to_be_near(input.among.inventory, input.among.request);
  std::map<int, Hcas> tiers;
  for (const NodeHca* node : hcas)
    tiers[tier(*node, input)].push_back(node);
  Hcas order;
  for (const auto& [ignored, of_tier] : tiers) {
    const Hcas near = by_nearness(has_planes(input.among.config.rails) ? in_turns(of_tier) : of_tier, gpus);
    order.insert(order.end(), near.begin(), near.end());
  }
  return order;
}

// Returns the HCAs that no preference but nearness distinguishes.
Hcas common_of(const Hcas& hcas, const PlanInput& input) {
  constexpr int kActive = 2;
  Hcas common;
  std::ranges::copy_if(hcas, std::back_inserter(common),
                       [&](const NodeHca* node) { return tier(*node, input) == kActive; });
  return common;
}

bool precedes(const NodeHca* left, const NodeHca* right) {
  const auto plane_of = [](const NodeHca& node) { return node.entry ? node.entry->plane : std::nullopt; };
  return std::pair(left->rail, plane_of(*left)) < std::pair(right->rail, plane_of(*right));
}

Error too_few(unsigned count, std::size_t free, const Hcas& hcas, const Offers& offers, std::string_view source) {
  const std::string held = obstacles(hcas, offers);
  Error error = make_error("{}: requests {} {}, {} {} free{}{}", source, count, count == 1 ? "HCA" : "HCAs", free,
                           free == 1 ? "is" : "are", held.empty() ? "" : ": ", held);
  error.hint = held.empty() ? fmt::format("request at most {} of {}", hcas.size(), some_of(names_of(hcas)))
                            : fmt::format("request fewer; {}", kWhoHolds);
  const auto is_held = [&](const NodeHca* node) { return offers.at(node).room.held; };
  // If the node has too few HCAs, the reason is not kBusy: waiting would not help.
  if (count <= hcas.size() && std::ranges::any_of(hcas, is_held)) error.reason = FailureReason::kBusy;
  return error;
}

// Picks `count` units: each HCA once, then, in mode shared-multi, each HCA again, until it has no free unit.
Result<Hcas> pick(unsigned count, const Hcas& hcas, const Offers& offers, const PlanInput& input) {
  Hcas free;
  std::ranges::copy_if(hcas, std::back_inserter(free),
                       [&](const NodeHca* node) { return offers.at(node).room.units > 0; });
  const Hcas order = by_preference(free, input);
  Hcas picked;
  for (unsigned round = 0; picked.size() < count; ++round) {
    const std::size_t before = picked.size();
    for (const NodeHca* node : order)
      if (picked.size() < count && offers.at(node).room.units > round) picked.push_back(node);
    if (round == 0) follow_planes(common_of(order, input), picked);
    // Preference decides only which HCAs are picked. The picked HCAs are sorted by rail, so that all containers have
    // the same order.
    std::stable_sort(picked.begin() + static_cast<std::ptrdiff_t>(before), picked.end(), precedes);
    if (picked.size() == before) return too_few(count, before, hcas, offers, input.among.request.selection.source);
  }
  return picked;
}

// Returns the refusal of a listed HCA without enough free units.
Error no_room(const NodeHca& node, unsigned wanted, const Offer& offer, std::string_view source) {
  const std::string name = base::printable(node.name());
  Error error = offer.room.units == 0 ? make_error("{}: `{}` {}", source, name, offer.room.why)
                                      : make_error("{}: requests {} netdevs of `{}`, which has room for {}: it {}",
                                                   source, wanted, name, offer.room.units, offer.room.why);
  error.hint = offer.room.units == 0 ? kWhoHolds : "request fewer";
  if (offer.room.held) error.reason = FailureReason::kBusy;
  return error;
}

// Returns all HCAs of a request without a count, in the order of the request. Errors: an HCA has too few free units.
Result<Hcas> take_all(const Matched& matched, const Offers& offers, std::string_view source) {
  Hcas taken;
  std::map<const NodeHca*, unsigned> units;
  for (const MatchedGroup& group : matched.groups) {
    // With any_of_them, the HCAs of the group are equally near to a GPU, so one HCA with a free unit is enough.
    const auto has_room = [&](const NodeHca* node) { return offers.at(node).room.units > 0; };
    if (group.any_of_them && std::ranges::none_of(group.hcas, has_room))
      return no_room(*group.hcas.front(), 1, offers.at(group.hcas.front()), source);
    for (const NodeHca* node : group.hcas) {
      const Offer& offer = offers.at(node);
      if (group.any_of_them && !has_room(node)) continue;
      unsigned& wanted = units[node];
      if (wanted > 0 && (offer.terms.mode != Mode::kSharedMulti || group.any_of_them)) continue;
      if (++wanted > offer.room.units) return no_room(*node, wanted, offer, source);
      taken.push_back(node);
    }
  }
  return taken;
}

// Computes terms and room of each HCA. Errors: terms_for() fails. If the request has a count, an HCA for which
// terms_for() fails is only removed from `hcas`, unless terms_for() fails for all HCAs.
Result<Offers> offers_for(const Matched& matched, Hcas& hcas, const PlanInput& input) {
  Offers offers;
  std::optional<Error> refused;
  Hcas allowed;
  for (const NodeHca* node : hcas) {
    auto terms = terms_for(*node, input.among.request, input.among.config);
    if (!terms && !matched.count) return base::wrap(std::move(terms).error(), input.among.request.selection.source);
    if (!terms) {
      if (!refused) refused = base::wrap(std::move(terms).error(), input.among.request.selection.source);
      continue;
    }
    const Room room = room_for(*node, *terms, input);
    offers.emplace(node, Offer{*std::move(terms), room});
    allowed.push_back(node);
  }
  if (allowed.empty() && refused) return *std::move(refused);
  hcas = std::move(allowed);
  return offers;
}

// Returns true if an HCA is offered in mode shared-multi. The count of a request can then exceed the number of HCAs,
// because one HCA can be chosen several times.
bool has_multi(const Offers& offers) {
  return std::ranges::any_of(offers, [](const auto& offer) { return offer.second.terms.mode == Mode::kSharedMulti; });
}

}  // namespace

std::string GidSpace::text() const {
  return fmt::format("has {} of {} GID slots free, a child netdev needs {}", slots - used, slots, per_child);
}

std::optional<GidSpace> gid_space(const fabric::Hca& hca) {
  std::optional<GidSpace> least;
  for (const fabric::Port& port : hca.ports) {
    // An incomplete table has an unknown number of free slots.
    if (!port.is_ethernet() || !port.gid_tbl_len || !port.gids_complete || port.gids_error) continue;
    GidSpace space{*port.gid_tbl_len, std::min(static_cast<unsigned>(port.gids.size()), *port.gid_tbl_len), 2};
    const auto has_type = [](const fabric::GidEntry& gid) {
      return gid.type && std::holds_alternative<std::string>(*gid.type) && !gid.is_v2();
    };
    if (std::ranges::any_of(port.gids, has_type)) space.per_child = 4;
    if (!least || space.children() < least->children()) least = space;
  }
  return least;
}

Result<Terms> terms_for(const NodeHca& node, const Request& request, const Config& config) {
  Terms terms;
  const auto claim = request.claimed.find(node.name());
  const ClaimTerms asked =
      claim == request.claimed.end() ? ClaimTerms{request.mode, request.network, {}} : claim->second;
  const auto& network = asked.network ? asked.network : node.pool->network;
  if (network) {
    const auto found = config.networks.find(*network);
    if (found == config.networks.end())
      return Error{fmt::format("config.json has no network `{}`", base::printable(*network)), 0,
                   "add it to \"networks\""};
    terms.network = &found->second;
    const auto& pool = found->second.pool;
    if (claim != request.claimed.end() && pool && *pool != node.pool->name)
      return Error{fmt::format("`{}` is in pool `{}`, but network `{}` of its claim uses pool `{}`",
                               base::printable(node.name()), node.pool->name, *network, *pool),
                   0, "let the claim name a network of the HCA's pool"};
  }
  const auto& modes = node.pool->modes;
  terms.mode = asked.mode.value_or(default_mode(*node.pool, terms.network));
  if (std::ranges::find(modes, terms.mode) == modes.end()) {
    std::vector<std::string> allowed;
    allowed.reserve(modes.size());
    for (const Mode mode : modes)
      allowed.emplace_back(to_string(mode));
    return Error{fmt::format("`{}`: pool `{}` does not allow mode {}", base::printable(node.name()), node.pool->name,
                             to_string(terms.mode)),
                 0, "request one of its modes: " + base::join(allowed, ", ")};
  }
  const auto limit = node.pool->limits.find(terms.mode);
  if (limit != node.pool->limits.end()) terms.limit = limit->second;
  return terms;
}

Room room_for(const NodeHca& node, const Terms& terms, const PlanInput& input) {
  const Holding holding = holding_of(node.name(), input.holdings);
  const bool multi = terms.mode == Mode::kSharedMulti;
  // own_units is 0 if the HCA is booked for this owner without a grant (PlannedHca::held_only). Such an HCA counts as
  // one unit.
  const unsigned own = holding.own ? std::max(holding.own_units, 1U) : 0;
  Room room{multi ? kNoBound : 1, {}, false};
  const std::string doubt = doubt_of(holding);
  if (const std::string held = held_against(terms.mode, holding); !held.empty()) bound(room, 0, held, true);
  if (const std::string held = held_with_pf(node, input); !held.empty()) bound(room, 0, held, true);
  if (terms.mode == Mode::kExclusive) {
    // An exclusive owner of a physical function controls its VFs. So a physical function is not granted while another
    // owner has one of its VFs.
    for (const std::string& vf : vfs_of(node, input.among.inventory)) {
      const std::string held = held_against(terms.mode, holding_of(vf, input.holdings));
      if (!held.empty()) bound(room, 0, fmt::format("has the VF {}, which {}", base::printable(vf), held), true);
    }
    if (const auto& unseen = node.hca->unseen_vf) bound(room, 0, fmt::format("has the VF {}", *unseen), true);
  }
  if (terms.limit) {
    bound(room, *terms.limit - std::min(*terms.limit, holding.others),
          fmt::format("has {} of {} places in use in mode {}{}", holding.others, *terms.limit, to_string(terms.mode),
                      doubt),
          true);
  }
  if (multi)
    if (const auto space = gid_space(*node.hca)) bound(room, own + space->children(), space->text(), false);
  // The container or its pod keeps the units (places on the HCA) that it already has.
  if (room.units < own) room = {own, room.why, room.held};
  return room;
}

UnitBounds bounds_for(const Terms& terms, unsigned units) {
  if (terms.mode == Mode::kExclusive) return {.least = 1, .most = 1};
  const unsigned limit = terms.limit.value_or(0);
  if (limit == 0) return {};
  const unsigned wanted = terms.mode == Mode::kSharedMulti ? std::clamp(units, 1U, limit) : 1;
  return {.least = limit - wanted + 1, .most = limit};
}

std::map<std::string, UnitBounds> bounds_of(const Candidates& among) {
  std::map<std::string, UnitBounds> bounds;
  if (!among.matched) return bounds;
  const auto add = [&](const std::string& name, UnitBounds more) {
    if (more.most == 0) return;
    const auto [known, is_new] = bounds.emplace(name, more);
    if (!is_new)
      known->second = {.least = std::min(known->second.least, more.least),
                       .most = std::max(known->second.most, more.most)};
  };
  const auto units = among.matched->count.value_or(static_cast<unsigned>(among.matched->groups.size()));
  for (const NodeHca* node : among.matched->hcas()) {
    const auto terms = terms_for(*node, among.request, among.config);
    if (!terms) continue;
    add(node->name(), bounds_for(*terms, units));
    if (terms->mode != Mode::kExclusive) continue;
    for (const std::string& vf : vfs_of(*node, among.inventory))
      add(vf, bounds_for(*terms));
  }
  return bounds;
}

bool has_place(const Terms& terms, const Holding& holding) {
  return holding.own || (held_against(terms.mode, holding).empty() && (!terms.limit || holding.others < *terms.limit));
}

std::vector<std::string> unavailable(const PlanInput& input, const std::vector<std::string>& shortlist) {
  const Hcas usable = input.among.matched ? input.among.matched->hcas() : Hcas();
  const auto is_available = [&](const std::string& name) {
    const auto node = std::ranges::find_if(usable, [&](const NodeHca* one) { return one->name() == name; });
    if (node == usable.end()) return false;
    const auto terms = terms_for(**node, input.among.request, input.among.config);
    return terms && room_for(**node, *terms, input).units > 0;
  };
  std::vector<std::string> names;
  std::ranges::copy_if(shortlist, std::back_inserter(names),
                       [&](const std::string& name) { return !is_available(name); });
  return names;
}

// A grant of a physical function also books the VFs that exist at that time (hold_vfs()). VFs can be made, bound or
// renamed later, so the owner of the physical function is checked for each VF.
std::string held_with_pf(const NodeHca& node, const PlanInput& input) {
  bool own = false;
  for (const std::string& pf : pfs_of(node, input.among.inventory)) {
    const Holding holding = holding_of(pf, input.holdings);
    own = own || holding.own;
    if (!holding.exclusive_owner) continue;
    return fmt::format("is a VF of {}, which is held by {}", base::printable(pf), *holding.exclusive_owner);
  }
  if (!node.hca->is_pf_hidden || own) return "";
  return fmt::format("is a VF of {}, which is in another network namespace",
                     base::printable(node.hca->physfn.value_or("a function")));
}

Result<Chosen> choose(const PlanInput& input) {
  if (!input.among.matched) return input.among.matched.error();
  const Matched& matched = *input.among.matched;
  Chosen chosen{{}, matched.warnings};
  Hcas hcas = matched.hcas();
  const Offers offers = TRY(offers_for(matched, hcas, input));
  Hcas units;
  if (matched.count) {
    unsigned count = std::min(*matched.count, matched.at_most.value_or(*matched.count));
    // If lists narrow the HCAs to fewer than the requested count, only the remaining HCAs are requested.
    if (matched.is_narrowed && !has_multi(offers)) count = std::min(count, static_cast<unsigned>(hcas.size()));
    units = TRY(pick(count, hcas, offers, input));
  } else {
    // A list, or `all`, is granted completely or not at all. If a count narrows it, pick() takes that many of its HCAs.
    units = TRY(take_all(matched, offers, input.among.request.selection.source));
    if (matched.at_most && *matched.at_most < units.size()) units = TRY(pick(*matched.at_most, hcas, offers, input));
  }
  if (matched.at_most && *matched.at_most > units.size())
    chosen.warnings.push_back(fmt::format("{0} requests {1} HCAs, but can only narrow the HCAs of {3}, which has {2}",
                                          input.among.request.narrowed_by.front().source, *matched.at_most,
                                          units.size(), input.among.request.selection.source));
  for (const NodeHca* unit : units)
    chosen.units.push_back({unit, offers.at(unit).terms});
  return chosen;
}

}  // namespace hook
