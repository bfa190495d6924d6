#include "init/deciding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fabric/text.hpp"
#include "init/explain.hpp"

namespace init {
namespace {

using fabric::printable;

// Kept NCCL_IB_ADDR_FAMILY, _ADDR_RANGE and _ROCE_VERSION_NUM only matter while NCCL chooses the index by itself.
void check_gid_rules(Deciding& d, const std::vector<WantedGid>& gids) {
  bool any = false;
  for (const std::string_view name : kGidRuleNames) {
    if (!d.kept.values().contains(name)) d.kept.keep(name, std::nullopt);
    any |= d.kept.find(name) != nullptr;
  }
  if (!any || d.kept.fixed_index()) return;
  // An index that serves every port will be exported, and NCCL then looks at none of the three.
  const nccl::GidRules rules = d.effective_rules(true);
  if (!d.kept.in_effect("NCCL_IB_GID_INDEX") && share_index(gids, rules.range).others.empty()) return;
  const auto wrong = wrong_ports(gids, rules);
  // What goes wrong without them too is not their fault.
  if (wrong.size() <= wrong_ports(gids, d.effective_rules(false)).size()) return;
  for (const std::string_view name : kGidRuleNames) {
    if (!d.kept.find(name) || d.kept.values().find(name)->second.problem) continue;
    d.kept.keep(name, fmt::format("leads NCCL to a wrong GID on {}", list_ports(d.candidates, wrong)));
  }
}

void drop_wrong_ports(Deciding& d) {
  if (d.plan.wrong.empty()) return;
  const std::string why =
      d.plan.index ? fmt::format(
                         "its GID is not at index {}, which the other ports need, and NCCL cannot choose it by "
                         "itself",
                         *d.plan.index)
                   : "its GID is not the one NCCL would choose, and no setting makes it so";
  if (d.kept.in_effect("NCCL_IB_HCA")) {
    d.kept.keep("NCCL_IB_HCA", fmt::format("takes {}: {}", list_ports(d.candidates, d.plan.wrong), why));
  }
  d.decision.warnings.push_back(fmt::format("dropped {}: {}; align the GID indices of the rails (rdma-hook) to use all",
                                            list_ports(d.candidates, d.plan.wrong), why));
  if (d.policy.strict) {
    d.refuse(fmt::format("--strict: would drop {}: {}", list_ports(d.candidates, d.plan.wrong), why),
             "align the GID indices of the rails (rdma-hook), or leave the port out with --hca");
  }
  for (const std::size_t i : d.plan.wrong) {
    d.choice.drop_reasons[i] = why;
    std::erase(d.choice.ports, i);
  }
}

void leave_what_nccl_ignores(Deciding& d) {
  // The older one takes fewer: 16 before NCCL 2.18.5.
  const nccl::Version oldest = std::min(d.version(), d.image_version().value_or(d.version()));
  const std::size_t limit = nccl::max_ports(oldest);
  if (!d.kept.writes_for("nccl") || d.choice.ports.size() <= limit) return;
  d.decision.warnings.push_back(
      fmt::format("{} ports, but NCCL {} takes {} at most and ignores the rest; choose with --hca",
                  d.choice.ports.size(), nccl::to_string(oldest), limit));
  for (std::size_t i = limit; i < d.choice.ports.size(); ++i) {
    d.choice.drop_reasons[d.choice.ports[i]] =
        fmt::format("NCCL {} takes {} ports at most; --hca chooses others", nccl::to_string(oldest), limit);
  }
  d.choice.ports.resize(limit);
}

void plan_index_of_all(Deciding& d) {
  const auto gids = d.wanted();
  check_gid_rules(d, gids);
  d.plan.index = d.kept.fixed_index();
  if (d.plan.index || gids.empty()) return;
  const bool may_set_range = !d.kept.in_effect(kGidRuleNames[1]);
  if (d.kept.in_effect("NCCL_IB_GID_INDEX")) {
    // A kept value of -1 leaves the choice to NCCL. It is wrong where NCCL's choice is, whatever else we set.
    d.plan = plan_nccl_choice(gids, d.effective_rules(true), may_set_range);
    if (!d.plan.wrong.empty()) {
      d.kept.keep("NCCL_IB_GID_INDEX", fmt::format("leaves the choice to NCCL, which takes a wrong GID on {}",
                                                   list_ports(d.candidates, d.plan.wrong)));
      d.plan.wrong.clear();
    }
  }
  if (!d.kept.in_effect("NCCL_IB_GID_INDEX")) d.plan = plan_index(gids, d.effective_rules(true), may_set_range);
  d.decision.needs_full |= d.plan.needs_tables;
  // Only NCCL has the one index for all: without it every port keeps its best GID where no index serves them all.
  if (d.kept.writes_for("nccl")) {
    drop_wrong_ports(d);
  } else if (!d.plan.wrong.empty()) {
    d.plan.index.reset();
  }
}

}  // namespace

void plan_gids(Deciding& d) {
  plan_index_of_all(d);
  leave_what_nccl_ignores(d);
}

}  // namespace init
