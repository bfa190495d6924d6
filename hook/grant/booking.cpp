#include "hook/grant/booking.hpp"

#include <algorithm>
#include <vector>

namespace hook {

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
  return std::any_of(grant->users.begin(), grant->users.end(),
                     [&](const GrantUser& user) { return user.key == who.user.key; });
}

Booking::~Booking() {
  if (finished_) return;
  try {
    undo();
  } catch (...) {
    // No memory is left for the roll-back. The grant stays pending, so the next call rolls it back when this process
    // has ended.
  }
}

void Booking::undo() const {
  const auto undone = had_before_ ? Result<void>() : ledger_.leave(who_.owner, who_.user.key);
  if (undone) {
    // A container that had a grant before this call may be running, so the HCAs that this call added stay.
    (void)ledger_.settle(who_.owner.key).has_value();
  } else {
    // The booking stays pending: a settled grant would be valid although some of its rails are already restored to the
    // node.
    log_.error(base::wrap(undone.error(), "rolling back the start"));
  }
  log_.warnings(rails_.take_warnings());
}

Result<void> Booking::finish() {
  finished_ = true;
  return ledger_.settle(who_.owner.key);
}

}  // namespace hook
