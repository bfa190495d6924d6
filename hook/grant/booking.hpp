// Between booking and the end of its steps.
#pragma once

#include "hook/base/log.hpp"
#include "hook/base/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/undo.hpp"

namespace hook {

// Writes what the plan holds into the ledger, pending until it is settled. Nothing is held: nothing is written. view:
// as GrantUser has it.
Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who, const std::string& view);

// This container has been given this grant by an earlier call, and may live. Errors: the ledger's.
Result<bool> was_given_before(const Ledger& ledger, const Grantee& who);

// Unless finished, what was booked is given back, but not from a container that had it before this call: that one may
// be running. What cannot be given back stays pending, and who comes after this process tries again. All arguments have
// to outlive it.
class Booking {
 public:
  Booking(const Ledger& ledger, const Grantee& who, const NodeRails& rails, const Log& log, bool had_before)
      : ledger_(ledger), who_(who), rails_(rails), log_(log), had_before_(had_before) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking();
  // Keeps what was booked, and settles it.
  Result<void> finish();

 private:
  void undo() const;

  const Ledger& ledger_;
  const Grantee& who_;
  const NodeRails& rails_;
  const Log& log_;
  bool had_before_;
  bool finished_ = false;
};

}  // namespace hook
