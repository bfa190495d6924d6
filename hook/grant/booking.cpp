#include "hook/grant/booking.hpp"

#include <algorithm>

namespace hook {

using fabric::Result;

Booking::~Booking() {
  if (finished_) return;
  try {
    undo();
  } catch (...) {
    // No memory left: what is half done carries this process' number, and the next call undoes it.
  }
}

void Booking::undo() const {
  const auto left = had_before_ ? Result<void>() : ledger_->leave(*owner_, user_);
  if (!left) log_->error(fabric::wrap(left.error(), "undoing the start"));
  (void)ledger_->settle(owner_->key).has_value();
  log_->warnings(rails_->take_warnings());
}

Result<void> Booking::finish() {
  finished_ = true;
  return ledger_->settle(owner_->key);
}

bool Booking::has_settled() const {
  const auto grant = ledger_->find(owner_->key);
  if (!grant || !*grant || (*grant)->pending) return false;
  const auto& users = (*grant)->users;
  return std::any_of(users.begin(), users.end(), [&](const GrantUser& user) { return user.key == user_; });
}

}  // namespace hook
