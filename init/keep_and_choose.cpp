#include "init/deciding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fabric/text.hpp"
#include "init/explain.hpp"

namespace init {
namespace {

using fabric::printable;

constexpr unsigned kIpv4Bits = 96;  // in front of an IPv4 address, as Cidr::prefix counts

// NCCL stays at index 0 where nothing is in the range, and where a GID of the family and of RoCE v2 is there; that
// may be the port's own.
void keep_what_nccl_takes(Deciding& d, const nccl::GidRules& rules, std::vector<Candidate>& narrowed) {
  for (std::size_t i = 0; i < narrowed.size(); ++i) {
    if (!d.at(i).usable() || !d.at(i).port->is_ethernet()) continue;
    const nccl::GidChoice choice = nccl::choose_gid(*d.at(i).port, rules);
    d.decision.needs_full |= !d.at(i).port->gids_complete;
    const auto is_taken = [&](const UsableGid& gid) {
      return gid.index == choice.index && !choice.uncertain && gid.rank != GidRank::kLinkLocal;
    };
    const auto own = std::find_if(d.at(i).gids.begin(), d.at(i).gids.end(), is_taken);
    if (own == d.at(i).gids.end() || rules.range->contains(own->gid)) continue;
    narrowed[i] = d.at(i);
    narrowed[i].gids = {*own};
  }
}

// Takes the ports that the filter leaves. False: it would leave no address where there is one. rules: with a range.
bool narrow(Deciding& d, std::string_view name, const GidFilter& filter, bool possible,
            const nccl::GidRules* rules = nullptr) {
  const auto with_address = [](const Candidate& c) { return c.best(GidRank::kIpv4) || c.best(GidRank::kIpv6); };
  auto narrowed = find_candidates(d.inventory, filter);
  if (rules) keep_what_nccl_takes(d, *rules, narrowed);
  const auto had = std::find_if(d.candidates.begin(), d.candidates.end(), with_address);
  if (had != d.candidates.end() && (!possible || std::none_of(narrowed.begin(), narrowed.end(), with_address))) {
    d.kept.keep(name, fmt::format("allows no GID of this container: {} has {}", printable(had->name()),
                                  to_string(had->best()->gid)));
    return false;
  }
  std::swap(d.candidates, narrowed);
  if (d.all.empty()) d.all = std::move(narrowed);
  return true;
}

// What is set of the family and the network of addresses is a filter like the options, unless it leaves nothing. A
// fixed index voids it.
void filter_addresses(Deciding& d) {
  GidFilter filter = d.policy.gids;
  const Setting* family = d.kept.find(kGidRuleNames[0]);
  if (const auto wanted_family = d.kept_family()) {
    filter.family = wanted_family;
    if (!narrow(d, kGidRuleNames[0], filter, !d.policy.gids.family || d.policy.gids.family == filter.family)) {
      filter.family = d.policy.gids.family;
      family = nullptr;
    }
  }
  const Setting* range = d.kept.find(kGidRuleNames[1]);
  if (!range) return;
  // Without a family it is that of the range: where IPv6 is chosen, AF_INET6 is exported.
  const bool ipv6 = range->value.find(':') < range->value.find('/');
  const auto rules = nccl::parse_gid_rules(family ? family->value : ipv6 ? "AF_INET6" : "", range->value, "");
  const bool roce = std::any_of(d.candidates.begin(), d.candidates.end(), [](const Candidate& candidate) {
    return candidate.port->is_ethernet() && candidate.port->is_active();
  });
  d.kept.keep(kGidRuleNames[1], check_range(range->value, rules, roce));
  if (!rules.range || rules.range->base.family() != rules.family || !d.kept.in_effect(kGidRuleNames[1])) return;
  // All of a family: where the other is chosen NCCL ignores it.
  if (rules.range->prefix == (rules.family == fabric::Family::kIpv4 ? kIpv4Bits : 0U)) return;
  filter.range = rules.range;
  narrow(d, kGidRuleNames[1], filter, true, &rules);
}

void choose(Deciding& d) {
  ChoiceRules rules;
  rules.kept_index = d.kept.fixed_index();
  rules.hcas = d.policy.hcas;
  if (const Setting* setting = d.kept.in_effect("NCCL_IB_HCA")) {
    rules.kept_hcas = nccl::parse_hca_list(setting->value, d.version());
  }
  d.choice = choose_ports(d.inventory, d.candidates, rules);
  if (!rules.kept_hcas || d.choice.efa) return;
  if (d.policy.hcas)
    d.decision.remarks.emplace_back("NCCL_IB_HCA is set already and defines the ports, so --hca does not");
  // NCCL uses what the kept list takes, also what does not fit the rest of it.
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    if (d.candidates[i].usable() && !d.choice.drop_reasons[i].empty() &&
        rules.kept_hcas->matches(d.candidates[i].hca->name, d.candidates[i].port->number)) {
      d.kept.keep("NCCL_IB_HCA", fmt::format("takes {}: {}", list_ports(d.candidates, {i}), d.choice.drop_reasons[i]));
      // Under --override it gives way, and the choice is made anew.
      if (!d.kept.in_effect("NCCL_IB_HCA")) choose(d);
      return;
    }
  }
}

void keep_gid_indices(Deciding& d) {
  // What is set of addresses for NCCL narrows no other library's.
  std::vector<const Candidate*> chosen;
  for (const std::size_t i : d.choice.ports)
    chosen.push_back(d.all.empty() ? &d.at(i) : &d.all[i]);
  for (const std::string_view name : kIndexNames) {
    const Setting* setting = d.kept.find(name);
    if (!setting) continue;
    const bool ucx_auto = name.starts_with("UCX_") && setting->value == "auto";
    const long index = ucx_auto                    ? -1
                       : name.starts_with("NCCL_") ? nccl::parse_index(setting->value)
                                                   : nccl::parse_param(setting->value, -1);
    d.kept.keep(name,
                index < 0 ? std::nullopt : check_gid_index(index, chosen, d.decision.needs_full, d.kept_family()));
  }
}

}  // namespace

bool keep_and_choose(Deciding& d) {
  if (const Setting* off = d.kept.find("NCCL_IB_DISABLE"); off && nccl::parse_param(off->value, 0) != 0) {
    d.decision.remarks.push_back(
        fmt::format("NCCL_IB_DISABLE={} ({}): NCCL will not use RDMA", printable(off->value), printable(off->source)));
  }
  if (const Setting* index = d.kept.find(kIndexNames[0]); !index || nccl::parse_index(index->value) < 0)
    filter_addresses(d);
  if (const Setting* list = d.kept.find("NCCL_IB_HCA"))
    d.kept.keep("NCCL_IB_HCA", check_hca_list(list->value, d.candidates, d.version()));
  choose(d);
  for (const Candidate& candidate : d.candidates)
    d.decision.needs_full |= candidate.needs_table;
  if (d.choice.ports.empty()) return false;
  keep_gid_indices(d);
  if (d.kept.find(kIndexNames[0]) && !d.kept.in_effect(kIndexNames[0])) {
    // It gave way, so what is said of addresses counts again.
    filter_addresses(d);
    choose(d);
  }
  return true;
}

}  // namespace init
