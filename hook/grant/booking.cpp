#include "hook/grant/booking.hpp"

#include <algorithm>
#include <vector>

namespace hook {

using fabric::Result;

Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who) {
  std::vector<PlannedHca> held = plan.hcas;
  held.insert(held.end(), plan.also_open.begin(), plan.also_open.end());
  return held.empty() ? Result<void>() : locks.book(who.owner, held, who.user);
}

Booking::~Booking() {
  if (finished_) return;
  try {
    undo();
  } catch (...) {
    // No memory left: what is half done carries this process' number, and the next call undoes it.
  }
}

void Booking::undo() const {
  const auto left = had_before_ ? Result<void>() : ledger_.leave(who_.owner, who_.user.key);
  if (!left) log_.error(fabric::wrap(left.error(), "undoing the start"));
  // For a container that had its grant before: what this call added to it stays, as the container may be running.
  (void)ledger_.settle(who_.owner.key).has_value();
  log_.warnings(rails_.take_warnings());
}

Result<void> Booking::finish() {
  finished_ = true;
  return ledger_.settle(who_.owner.key);
}

bool Booking::has_settled() const {
  const auto grant = ledger_.find(who_.owner.key);
  if (!grant || !*grant || (*grant)->pending) return false;
  const auto& users = (*grant)->users;
  return std::any_of(users.begin(), users.end(), [&](const GrantUser& user) { return user.key == who_.user.key; });
}

}  // namespace hook
