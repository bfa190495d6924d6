// Between booking and the end of its steps.
#pragma once

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/grant/grant.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/return_rails.hpp"

namespace hook {

// Writes what the plan holds into the ledger, pending until it is settled. Nothing is held: nothing is written.
fabric::Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who);

// Unless finished, what was booked is given back, but not from a container that had it before this call: that one may
// be running. All arguments have to outlive it.
class Booking {
 public:
  Booking(const Ledger& ledger, const Grantee& who, const NodeRails& rails, const Log& log)
      : ledger_(ledger), who_(who), rails_(rails), log_(log), had_before_(has_settled()) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking();
  // Keeps what was booked, and settles it.
  fabric::Result<void> finish();
  // This container has been given this grant by an earlier call.
  bool had_before() const { return had_before_; }

 private:
  void undo() const;
  bool has_settled() const;

  const Ledger& ledger_;
  const Grantee& who_;
  const NodeRails& rails_;
  const Log& log_;
  bool had_before_;
  bool finished_ = false;
};

}  // namespace hook
