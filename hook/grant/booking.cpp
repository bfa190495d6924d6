#include "hook/grant/booking.hpp"

#include <algorithm>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "hook/grant/events.hpp"

namespace hook {
namespace {

// Returns the names of the first HCAs, for people. The event line after this text has all names.
std::string some_names(const Plan& plan) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan.hcas)
    names.push_back(hca.name);
  return base::join_first(names, kShown);
}

}  // namespace

Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who, const std::vector<std::string>& views) {
  std::vector<PlannedHca> held = plan.hcas;
  held.insert(held.end(), plan.also_open.begin(), plan.also_open.end());
  if (held.empty()) return {};
  GrantUser user = who.user;
  set_views(user, views);
  return locks.book(who.owner, held, user);
}

Result<bool> was_allocated_before(const Ledger& ledger, const Grantee& who) {
  const auto grant = TRY(ledger.find(who.owner.key));
  if (!grant || grant->pending || grant->stale) return false;
  return std::ranges::any_of(grant->users, [&](const GrantUser& user) { return user.key == who.user.key; });
}

Result<void> Booking::begin() {
  had_before_ = TRY(was_allocated_before(call.ledger->ledger, who));
  return {};
}

Booking::~Booking() {
  if (finished_) return;
  try {
    if (had_before_) roll_back();
    call.ledger->report(Releaser::kOther, call);
  } catch (...) {
    // Without memory for the roll-back the grant stays pending, so the next call rolls it back when this process has
    // ended.
  }
}

void Booking::roll_back() const {
  const auto& [rails, ledger] = *call.ledger;
  const auto left = *had_before_ ? Result<void>() : ledger.leave(who.owner, who.user.key);
  if (left) {
    // A container that had a grant before this call may be running, so the HCAs that this call added stay.
    (void)ledger.settle(who.owner.key).has_value();
  } else {
    // The booking stays pending: a settled grant would be valid although some of its rails are already restored to the
    // node.
    call.log.error(base::wrap(left.error(), "rolling back the start"));
  }
  call.log.warnings(rails->take_warnings());
}

Result<void> Booking::finish() {
  finished_ = true;
  auto settled = about(FailureReason::kLedger, call.ledger->ledger.settle(who.owner.key));
  if (settled) {
    call.timing.step("ledger");
    if (!plan.hcas.empty()) note_grant();
  }
  call.ledger->report(Releaser::kOther, call);
  return settled;
}

// Logs the grant, and counts it in the outcome. The logged rails are all rails in the container's network namespace,
// including rails of other containers of its pod.
void Booking::note_grant() const {
  // "kept" means that an earlier call granted the HCAs, for example if the engine runs the hook at prestart and again
  // at createRuntime.
  const std::string_view event = *had_before_ ? "kept" : way.event;
  const auto rails = plan.netdevs.empty() ? std::nullopt : read_rails_of(call.node.ledger, who.owner.key);
  std::optional<std::string> require;
  if (const auto set = plan.env.find("RDMA_INIT_REQUIRE"); way.variables)
    require = plan.no_require.empty() && set != plan.env.end() ? set->second : "-:" + plan.no_require;
  const Granted granted{.container = call.container,
                        .owner = who.owner,
                        .engine = requesting.caller.engine,
                        .hcas = plan.hcas,
                        .source = requesting.request->selection.source,
                        .rails = rails,
                        .no_rail = plan.no_rail,
                        .require = std::move(require),
                        .timing = call.timing};
  call.log.info(fmt::format("{} {}: {}", event == "booked" ? event : "allocated", some_names(plan),
                            granted_line(event, granted)));
  if (event != "granted") return;
  call.outcome.granted_mode = mode_of(plan.hcas);
  call.outcome.engine = requesting.caller.engine;
}

}  // namespace hook
