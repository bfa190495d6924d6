#include "hook/grant/grant_steps.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "fabric/text.hpp"
#include "hook/grant/events.hpp"
#include "hook/grant/returns.hpp"

namespace hook {
namespace {

using fabric::Result;

// For people, in front of the line for programs; that has all of them.
std::string some_names(const Plan& plan) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan.hcas)
    names.push_back(hca.name);
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return fabric::join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

// Of refusals only: whether the node has no such HCA, or has it and others do.
FailureReason why_refused(const Container& container, const fabric::Inventory& inventory, const Owner& owner,
                          const GrantUser& user) {
  const auto named = named_hcas(*container.asked.request).value_or(std::vector<std::string>());
  const auto is_here = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  if (inventory.hcas.empty() || !std::all_of(named.begin(), named.end(), is_here)) return FailureReason::kNoHca;
  return decide(container, inventory, nullptr, owner, user, false) ? FailureReason::kBusy : FailureReason::kRefused;
}

}  // namespace

Result<Container> understand(const std::string& text, Call& call) {
  auto container = understand(text, call.options);
  if (!container) call.phase = read_config(call.options.config) ? FailureReason::kRefused : FailureReason::kConfig;
  return container;
}

void repair(const Ledger& ledger, const Log& log) {
  if (const auto repaired = ledger.repair_pending(); !repaired) log.warning(repaired.error().message);
}

Result<Plan> decide_and_book(const Container& container, const fabric::Inventory& inventory, const Ledger& ledger,
                             const Owner& owner, const GrantUser& user, Call& call) {
  call.phase = FailureReason::kRefused;
  auto plan = decide(container, inventory, &ledger, owner, user, true);
  if (!plan) {
    call.phase = why_refused(container, inventory, owner, user);
    return plan;
  }
  call.log.warnings(plan->warnings);
  call.timing.step("decide");
  return plan;
}

void note_grant(std::string_view event, const Container& container, const Owner& owner, const Plan& plan, Call& call) {
  const auto rails = plan.netdevs.empty() ? std::nullopt : read_rails_of(call.options.ledger, owner.key);
  const Granted granted{.container = call.container,
                        .owner = owner,
                        .engine = call.options.engine,
                        .hcas = plan.hcas,
                        .source = container.asked.request->wish.source,
                        .rails = rails,
                        .timing = call.timing};
  call.log.info(
      fmt::format("{} {}: {}", event == "booked" ? event : "given", some_names(plan), granted_line(event, granted)));
  if (event != "granted") return;
  const std::string engine(to_string(call.options.engine));
  call.counts.push_back({kGrantsTotal, {{"engine", engine}, {"mode", std::string(mode_of(plan.hcas))}}});
}

}  // namespace hook
