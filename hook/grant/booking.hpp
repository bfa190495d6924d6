// One container between booking and the end of its steps.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/return_rails.hpp"

namespace hook {

// Unless finished, what was booked is given back, but not from
// a container that had it before this call: that one may be running.
class Booking {
 public:
  Booking(const Ledger& ledger, const Owner& owner, std::string user, const NodeRails& rails, const Log& log)
      : ledger_(&ledger),
        owner_(&owner),
        rails_(&rails),
        log_(&log),
        user_(std::move(user)),
        had_before_(has_settled()) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking();
  // What was booked is kept.
  fabric::Result<void> finish();
  // This container has been given this grant by an earlier call.
  bool had_before() const { return had_before_; }

 private:
  void undo() const;
  bool has_settled() const;

  const Ledger* ledger_;
  const Owner* owner_;
  const NodeRails* rails_;
  const Log* log_;
  std::string user_;
  bool had_before_;
  bool finished_ = false;
};

}  // namespace hook
