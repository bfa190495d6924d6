#include "init/deciding.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "init/rdma_off.hpp"

namespace init {

void Deciding::put(std::string_view name, std::string value, std::string reason) {
  // The export of an earlier run is no choice of the user: it follows the decision.
  const Setting* setting = kept.in_effect(name);
  if (setting && !(setting->own && setting->value != value)) return;
  decision.notes.push_back(fmt::format("{}={}: {}", name, printable(value), reason));
  decision.env.emplace_back(name, std::move(value));
}

std::vector<WantedGid> Deciding::wanted() const {
  std::vector<WantedGid> gids;
  for (const std::size_t i : choice.ports) {
    const UsableGid* best = choice.rank && !at(i).port->is_infiniband() ? effective_gid(i) : nullptr;
    if (best) gids.push_back({i, &at(i), *best});
  }
  return gids;
}

nccl::GidRules Deciding::effective_rules(bool with_kept) const {
  const auto value = [&](std::string_view name) {
    const Setting* setting = with_kept ? kept.in_effect(name) : nullptr;
    return setting ? std::string_view(setting->value) : std::string_view();
  };
  std::string_view family = value(kGidRuleNames[0]);
  // If IPv6 GIDs are chosen, export_nccl() will export AF_INET6. NCCL uses IPv4 without that variable.
  if (family.empty() && choice.rank && *choice.rank != GidRank::kIpv4) family = "AF_INET6";
  nccl::GidRules rules = nccl::parse_gid_rules(family, value(kGidRuleNames[1]), value(kGidRuleNames[2]));
  // An index that replaces the user's is planned for the named version, with which the user tried the old one.
  rules.version = replaces_index() ? named_version().value_or(version()) : version();
  return rules;
}

const UsableGid* Deciding::effective_gid(std::size_t i) const {
  if (at(i).port->is_infiniband() || !choice.rank) return nullptr;
  const auto moved = plan.moved.find(i);
  if (plan.index || moved != plan.moved.end()) {
    const unsigned index = plan.index ? *plan.index : moved->second;
    const auto& gids = at(i).gids;
    const auto found = std::ranges::find(gids, index, &UsableGid::index);
    if (found != gids.end()) return &*found;
  }
  return at(i).best(*choice.rank);
}

std::optional<unsigned> Deciding::agreed_index() const {
  std::optional<unsigned> index;
  for (const std::size_t i : choice.ports) {
    const UsableGid* gid = effective_gid(i);
    if (!gid || (index && *index != gid->index)) return std::nullopt;
    index = gid->index;
  }
  return index;
}

std::optional<unsigned> Deciding::index_for_others() const {
  if (!kept.is_wrong(kIndexNames[0]) || !kept.fixed_index() || !choice.rank) return agreed_index();
  std::vector<WantedGid> gids;
  for (const std::size_t i : choice.ports) {
    const UsableGid* best = at(i).port->is_infiniband() ? nullptr : at(i).best(*choice.rank);
    if (!best) return std::nullopt;
    gids.push_back({i, &at(i), *best});
  }
  const IndexPlan shared = share_index(gids, {});
  return shared.wrong.empty() ? shared.index : std::nullopt;
}

std::vector<ChosenPort> Deciding::chosen_ports() const {
  std::vector<ChosenPort> ports;
  // Rails are exported only if the version is stated: tools other than NCCL read this variable too, and know no rails.
  const auto version = named_version();
  const bool reads_rails = version && *version >= nccl::kReadsRails;
  const Setting* set = kept.find("NCCL_IB_HCA");
  const nccl::HcaList list = meant ? *meant : set ? nccl::parse_hca_list(set->value) : nccl::HcaList();
  for (const std::size_t i : choice.ports) {
    ChosenPort port{&at(i), {}, {}};
    const auto entry = std::ranges::find_if(
        list.entries, [&](const auto& one) { return one.matches(at(i).hca->name, at(i).port->number); });
    if (entry != list.entries.end() && !list.exclude) port.rail = entry->rail;
    const auto stated = policy.rails.find(at(i).hca->name);
    if (port.rail.empty() && reads_rails && stated != policy.rails.end()) port.rail = nccl_suffix(stated->second);
    if (const UsableGid* gid = effective_gid(i)) {
      port.netdev = gid->netdev;
    } else if (!at(i).netdevs.empty()) {
      // InfiniBand needs no GID. UCX uses the IPoIB netdev for TCP, so only a netdev that is up with an address counts.
      const fabric::Netdev* ipoib = fabric::find_netdev(inventory, at(i).netdevs.front());
      if (ipoib && ipoib->is_up() && !ipoib->addresses.empty()) port.netdev = ipoib->name;
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

std::string Deciding::list(const std::vector<std::size_t>& ports) const {
  std::vector<std::string> names;
  names.reserve(ports.size());
  for (const std::size_t i : ports)
    names.push_back(printable(at(i).name()));
  return base::join(names, ", ");
}

void Deciding::refuse(std::string why, std::string remedy) {
  if (decision.refusal) return;
  decision.refusal = std::move(why);
  decision.refusal_remedy = std::move(remedy);
}

void Deciding::warn(std::string_view cause, Verdict effect, std::string message, std::string remedy) {
  decision.warnings.push_back({cause, effect, std::move(message), std::move(remedy)});
}

namespace {

constexpr unsigned kIpv4Bits = 96;  // prefix length of ::ffff:0:0/96, as in Cidr::prefix

// Keeps a GID of a port although it is outside the range, if NCCL chooses it. NCCL stays at index 0 if no GID is in the
// range, or if the GID at index 0 has the wanted family and type RoCE v2.
void keep_what_nccl_takes(Deciding& d, const nccl::GidRules& rules, std::vector<Candidate>& narrowed) {
  for (std::size_t i = 0; i < narrowed.size(); ++i) {
    if (!d.at(i).usable() || !d.at(i).port->is_ethernet()) continue;
    const nccl::GidChoice choice = nccl::choose_gid(*d.at(i).port, rules);
    d.decision.needs_full |= !d.at(i).port->gids_complete;
    const auto is_taken = [&](const UsableGid& gid) {
      return gid.index == choice.index && !choice.uncertain && gid.rank != GidRank::kLinkLocal;
    };
    const auto own = std::ranges::find_if(d.at(i).gids, is_taken);
    if (own == d.at(i).gids.end() || rules.range->contains(own->gid)) continue;
    narrowed[i] = d.at(i);
    narrowed[i].gids = {*own};
  }
}

// Narrows the candidates to the filter. If no address would be left, records this as the problem of the variable `name`
// and returns false. possible: false if the filter contradicts the options. rules: NCCL's rules, if the filter has a
// range.
bool narrow(Deciding& d, std::string_view name, const GidFilter& filter, bool possible,
            const nccl::GidRules* rules = nullptr) {
  const auto with_address = [](const Candidate& c) { return c.best(GidRank::kIpv4) || c.best(GidRank::kIpv6); };
  auto narrowed = find_candidates(d.inventory, filter);
  if (rules) keep_what_nccl_takes(d, *rules, narrowed);
  const auto had = std::ranges::find_if(d.candidates, with_address);
  if (had != d.candidates.end() && (!possible || std::ranges::none_of(narrowed, with_address))) {
    d.kept.keep(name,
                Problem{fmt::format("allows none of the GIDs here: {} has {}", printable(had->name()),
                                    to_string(had->best()->gid))},
                "gid-rules");
    return false;
  }
  std::swap(d.candidates, narrowed);
  if (d.all.empty()) d.all = std::move(narrowed);
  return true;
}

// Applies NCCL_IB_ADDR_FAMILY and NCCL_IB_ADDR_RANGE of the user as filters, if at least one address passes. The caller
// skips this function if a fixed GID index makes NCCL ignore the two variables.
void filter_addresses(Deciding& d) {
  GidFilter filter = d.policy.gids;
  const Setting* family = d.kept.find(kGidRuleNames[0]);
  if (family && (family->value == "AF_INET" || family->value == "AF_INET6")) {
    filter.family = family->value == "AF_INET" ? fabric::Family::kIpv4 : fabric::Family::kIpv6;
    if (!narrow(d, kGidRuleNames[0], filter, !d.policy.gids.family || d.policy.gids.family == filter.family)) {
      filter.family = d.policy.gids.family;
      family = nullptr;
    }
  }
  const Setting* range = d.kept.find(kGidRuleNames[1]);
  if (!range) return;
  if (range->own) {
    // A range of an earlier run leads NCCL to the right GIDs and selects no addresses. This run plans the range again.
    if (d.kept.may_replace(kGidRuleNames[1])) d.kept.keep(kGidRuleNames[1], Problem{"an earlier run planned it"});
    return;
  }
  // If the user has not set NCCL_IB_ADDR_FAMILY, the range is checked with the family of its own addresses, because
  // rdma-init exports AF_INET6 if it chooses IPv6 GIDs.
  if (family && family->own) family = nullptr;
  const bool ipv6 = range->value.find(':') < range->value.find('/');
  const auto rules = nccl::parse_gid_rules(family ? family->value : ipv6 ? "AF_INET6" : "", range->value, "");
  const bool roce = std::ranges::any_of(
      d.candidates, [](const Candidate& c) { return c.port->is_ethernet() && c.port->is_active(); });
  auto problem = check_range(range->value, rules, roce);
  d.kept.keep(kGidRuleNames[1], problem ? std::optional(Problem{*std::move(problem)}) : std::nullopt, "gid-rules");
  if (!rules.range || rules.range->base.family() != rules.family || !d.kept.in_effect(kGidRuleNames[1])) return;
  // A range of all addresses of a family filters nothing, and NCCL ignores this range for the other family.
  if (rules.range->prefix == (rules.family == fabric::Family::kIpv4 ? kIpv4Bits : 0U)) return;
  filter.range = rules.range;
  narrow(d, kGidRuleNames[1], filter, true, &rules);
}

// Returns true if an earlier run of rdma-init exported the list, and one of its entries has no port that opens here:
// one run can serve several tasks, of which each opens other HCAs (GRES of Slurm, with a hook of enroot).
bool is_list_of_other_task(const Deciding& d, const Setting& list) {
  const auto opens = [&](const nccl::HcaList::Entry& entry) {
    return std::ranges::any_of(d.candidates, [&](const Candidate& c) {
      return c.hca->is_accessible() && entry.matches(c.hca->name, c.port->number);
    });
  };
  return list.own && !std::ranges::all_of(nccl::parse_hca_list(list.value).entries, opens);
}

// Chooses the ports. If the user has set NCCL_IB_HCA (a kept value), checks it against the choice.
void choose(Deciding& d) {
  std::optional<nccl::HcaList> kept_hcas;
  if (const Setting* setting = d.kept.in_effect("NCCL_IB_HCA")) {
    kept_hcas = nccl::parse_hca_list(setting->value, d.version());
  } else if (const Setting* wrong = d.kept.find("NCCL_IB_HCA"); wrong && !d.has_list_of_other_task) {
    kept_hcas = d.meant = meaning_of(wrong->value, d.candidates);
  }
  d.choice =
      choose_ports(d.inventory, d.candidates, d.policy.hcas, kept_hcas, d.kept.fixed_index(), d.kept.pkey_index());
  d.decision.needs_models |= d.choice.needs_models;
  if (!kept_hcas || d.choice.efa) return;
  if (d.policy.hcas)
    d.decision.remarks.push_back(
        {"hca-ignored", Verdict::kNote, "NCCL_IB_HCA is already set and defines the ports: --hca is ignored"});
  if (d.meant) return;
  // NCCL uses every port of the user's list, including ports that do not fit the other chosen ports.
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    const std::string& why = d.choice.drops[i].message;
    if (d.candidates[i].usable() && !why.empty() &&
        kept_hcas->matches(d.candidates[i].hca->name, d.candidates[i].port->number)) {
      d.kept.keep("NCCL_IB_HCA", Problem{fmt::format("selects {}: {}", d.list({i}), why)}, "hca-list");
      // With --override the ports that the user meant replace the list, so the choice is made again.
      if (!d.kept.in_effect("NCCL_IB_HCA")) choose(d);
      return;
    }
  }
}

// Returns true if a RoCE port certainly has no GID at the index.
bool has_empty_slot(const fabric::Port& port, long index) {
  return port.is_ethernet() && port.gids_complete &&
         std::ranges::find(port.gids, index, &fabric::GidEntry::index) == port.gids.end();
}

// Checks the GID indices that the user has set (kept values) on the chosen ports.
void keep_gid_indices(Deciding& d) {
  // NCCL_IB_ADDR_* do not filter the GIDs of other libraries, so indices are checked on the candidates before that
  // filter (d.all).
  std::vector<const Candidate*> chosen;
  for (const std::size_t i : d.choice.ports)
    chosen.push_back(d.all.empty() ? &d.at(i) : &d.all[i]);
  for (const std::string_view name : kIndexNames) {
    const Setting* setting = d.kept.find(name);
    if (!setting) continue;
    const std::optional<long> read = name.starts_with("UCX_")    ? parse_ucx_index(setting->value)
                                     : name.starts_with("NCCL_") ? nccl::parse_index(setting->value)
                                                                 : nccl::parse_param(setting->value, -1);
    const long index = read.value_or(-1);
    std::optional<Problem> problem;
    if (!read) problem = Problem{"is no number, auto or inf, and UCX refuses it", Verdict::kBad};
    if (name.starts_with("UCX_") && index == kHighestUcxIndex) {
      problem = Problem{"is `inf` to UCX (write `auto` to let UCX choose), and no port has that GID"};
    } else if (index >= 0) {
      problem = check_gid_index(index, chosen, d.decision.needs_full);
    }
    // Seen with UCX 1.18: it leaves out a port whose slot is empty.
    const auto is_empty = [&](const Candidate* one) { return has_empty_slot(*one->port, index); };
    if (problem && index >= 0 && name.starts_with("UCX_")) {
      problem->effect = std::min(problem->effect, Verdict::kSlow);
      if (std::ranges::any_of(chosen, is_empty)) problem->text += "; UCX uses TCP there, without an error";
    }
    d.kept.keep(name, std::move(problem), "gid-index");
    // An earlier run exported the index for the ports with a GID of one family, and dropped the other ports.
    const auto is_other_family = [&](const Candidate* one) {
      const auto gid = std::ranges::find(one->gids, index, &UsableGid::index);
      return gid != one->gids.end() && gid->rank != d.choice.rank;
    };
    if (setting->own && std::ranges::any_of(chosen, is_other_family))
      d.kept.keep(name, Problem{"serves a part of the ports"});
  }
  keep_older(d, older_index(d));
}

// Checks the user's NCCL_IB_HCA and chooses the ports. A wrong list stays in effect if the ports that it means are
// unusable: the user did not mean the other ports.
void check_list_and_choose(Deciding& d) {
  const Setting* list = d.kept.find("NCCL_IB_HCA");
  d.has_list_of_other_task = list && is_list_of_other_task(d, *list);
  if (d.has_list_of_other_task) {
    d.kept.keep("NCCL_IB_HCA", Problem{"has an HCA that does not open here"}, "hca-list");
    if (std::ranges::none_of(d.candidates, &Candidate::usable)) d.kept.hold("NCCL_IB_HCA");
  } else if (list) {
    d.kept.keep("NCCL_IB_HCA", check_hca_list(list->value, d.candidates, d.version()), "hca-list");
    keep_older(d, older_list(d));
    const nccl::HcaList meaning = meaning_of(list->value, d.candidates);
    const auto is_meant = [&](const Candidate& c) {
      return c.usable() && meaning.matches(c.hca->name, c.port->number);
    };
    if (std::ranges::none_of(d.candidates, is_meant)) d.kept.hold("NCCL_IB_HCA");
  }
  choose(d);
}

// Checks the kept values and chooses the ports. Returns false if no port is chosen.
bool keep_and_choose(Deciding& d) {
  // An earlier run derived its index from the addresses that the filter left.
  const Setting* index = d.kept.find(kIndexNames[0]);
  if (!index || index->own || nccl::parse_index(index->value) < 0) filter_addresses(d);
  check_list_and_choose(d);
  for (const Candidate& candidate : d.candidates)
    d.decision.needs_full |= candidate.needs_table;
  if (d.choice.ports.empty()) return false;
  keep_gid_indices(d);
  if (d.replaces_index()) {
    // NCCL_IB_ADDR_FAMILY and _RANGE filter the GIDs again, and the other values are checked on the ports that are
    // left.
    filter_addresses(d);
    check_list_and_choose(d);
    keep_gid_indices(d);
  }
  return !d.choice.ports.empty();
}

// Checks NCCL_IB_ADDR_FAMILY, _ADDR_RANGE and _ROCE_VERSION_NUM, which matter only while NCCL chooses the index.
void check_gid_rules(Deciding& d, const std::vector<WantedGid>& gids) {
  bool any = false;
  for (const std::string_view name : kGidRuleNames) {
    if (!d.kept.values().contains(name)) d.kept.keep(name, std::nullopt);
    any |= d.kept.find(name) != nullptr;
  }
  if (!any || d.kept.fixed_index()) return;
  // If one index serves every port, it will be exported, and NCCL then ignores the three variables.
  const nccl::GidRules rules = d.effective_rules(true);
  if (!d.kept.in_effect("NCCL_IB_GID_INDEX") && share_index(gids, rules.range).is_right()) return;
  d.simulates = true;
  const auto wrong = wrong_ports(gids, rules);
  // If NCCL chooses a wrong GID on as many ports without these values, the values are not the cause.
  if (wrong.size() <= wrong_ports(gids, d.effective_rules(false)).size()) return;
  for (const std::string_view name : kGidRuleNames) {
    if (!d.kept.find(name) || d.kept.values().find(name)->second.problem) continue;
    d.kept.keep(name, Problem{fmt::format("leads NCCL to a wrong GID on {}", d.list(wrong)), Verdict::kBad},
                "gid-rules");
  }
}

// Drops the ports on which NCCL would use a wrong GID. One failed connection fails NCCL as a whole, so fewer ports are
// better.
void drop_wrong_ports(Deciding& d) {
  if (d.plan.wrong.empty()) return;
  const std::string why =
      d.plan.index
          ? fmt::format("its GID is not at index {}, which the other ports need, and NCCL cannot choose it by itself",
                        *d.plan.index)
          : "NCCL would choose another GID, and no setting prevents it";
  const std::string ports = d.list(d.plan.wrong);
  if (d.kept.in_effect("NCCL_IB_HCA")) {
    d.kept.keep("NCCL_IB_HCA", Problem{fmt::format("selects {}: {}", ports, why), Verdict::kBad}, "hca-list");
  }
  d.warn("gid-index", Verdict::kSlow, fmt::format("not used: {}: {}", ports, why),
         "set \"align_gids\": true for the network of the rails in rdma-hook's config.json on the node");
  if (d.policy.strict) {
    d.refuse(fmt::format("--strict: would drop {}: {}", ports, why),
             "set \"align_gids\": true for the network of the rails in rdma-hook's config.json on the node, or leave "
             "the port "
             "out with --hca");
  }
  for (const std::size_t i : d.plan.wrong) {
    d.choice.drops[i] = {"gid-index", Verdict::kNote, why};
    std::erase(d.choice.ports, i);
  }
}

// Drops the ports above NCCL's limit, so that all libraries use the same ports.
void leave_what_nccl_ignores(Deciding& d) {
  // The trainer may use the image's version of NCCL, so the older version decides. Before 2.18.5, NCCL uses 16 ports.
  const nccl::Version oldest = std::min(d.version(), d.image_version().value_or(d.version()));
  const std::size_t limit = nccl::max_ports(oldest);
  if (!d.kept.writes_for("nccl") || d.choice.ports.size() <= limit) return;
  d.warn("port-limit", Verdict::kNote,
         fmt::format("{} ports, but NCCL {} uses {} at most and ignores the rest; choose with --hca",
                     d.choice.ports.size(), nccl::to_string(oldest), limit));
  for (std::size_t i = limit; i < d.choice.ports.size(); ++i) {
    d.choice.drops[d.choice.ports[i]] = {
        "port-limit", Verdict::kNote,
        fmt::format("NCCL {} uses {} ports at most; --hca selects other ports", nccl::to_string(oldest), limit)};
  }
  d.choice.ports.resize(limit);
}

// Plans the GID index for all chosen ports.
void plan_index_of_all(Deciding& d) {
  const auto gids = d.wanted();
  check_gid_rules(d, gids);
  d.plan.index = d.kept.fixed_index();
  if (d.plan.index || gids.empty()) return;
  const bool may_set_range = !d.kept.in_effect(kGidRuleNames[1]);
  if (d.kept.in_effect("NCCL_IB_GID_INDEX")) {
    d.simulates = true;
    // If the user has set NCCL_IB_GID_INDEX to -1, NCCL chooses. The value is wrong if NCCL chooses a wrong GID on some
    // port with the present NCCL_IB_ADDR_RANGE and with each range that rdma-init could export.
    d.plan = plan_nccl_choice(gids, d.effective_rules(true), may_set_range);
    if (!d.plan.wrong.empty()) {
      d.kept.keep(
          "NCCL_IB_GID_INDEX",
          Problem{fmt::format("leaves the choice to NCCL, which chooses a wrong GID on {}", d.list(d.plan.wrong)),
                  Verdict::kBad},
          "gid-index");
      d.plan.wrong.clear();
    }
  }
  if (!d.kept.in_effect("NCCL_IB_GID_INDEX")) d.plan = plan_index(gids, d.effective_rules(true), may_set_range);
  d.decision.needs_full |= d.plan.needs_tables;
  d.simulates |= d.plan.is_simulated;
  // Only NCCL needs one index for all ports. Without NCCL, every port keeps its best GID if no index serves all of
  // them.
  if (d.kept.writes_for("nccl")) {
    drop_wrong_ports(d);
  } else if (!d.plan.wrong.empty()) {
    d.plan.index.reset();
  }
}

bool has_skipped_slots(const fabric::Inventory& inventory) {
  return std::ranges::any_of(inventory.hcas, [](const fabric::Hca& hca) {
    return std::ranges::any_of(hca.ports, &fabric::Port::gids_skipped);
  });
}

// Plans the GID index of the chosen ports, and drops ports that no index serves.
void plan_gids(Deciding& d) {
  plan_index_of_all(d);
  leave_what_nccl_ignores(d);
}

}  // namespace

// The order of the calls is part of the decision:
// - NCCL_IB_HCA of the user is checked before the choice, because it defines the ports unless --override drops it.
// - GID indices of the user are checked on the chosen ports and before plan_gids(), which plans only indices that are
// not set.
// - NCCL's exports follow the plan, which may have dropped ports; the exports of other libraries name the remaining
// ports.
// - Defaults for wrong values follow all exports, which may have replaced them.
// - Kept values are reported last, because the exports decide which of them were replaced.
Decision decide(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy) {
  Deciding d{inventory, policy, Kept(settings, policy.override_wrong, policy.exports),
             find_candidates(inventory, policy.gids)};
  d.decision.nccl_version = d.named_version();
  d.decision.remarks = settings_without_rdma(settings, policy.exports, d.decision.nccl_version, d.candidates);
  if (d.kept.writes_for("nccl")) d.decision.warnings = cut_values(settings);
  const bool chosen = keep_and_choose(d);
  if (chosen) plan_gids(d);
  report(d, chosen);
  d.decision.needs_skipped = d.simulates && has_skipped_slots(inventory);
  if (!d.decision.env.empty()) d.decision.mark = exports_mark(d.decision.env, settings);
  return std::move(d.decision);
}

}  // namespace init
