// Books a new grant as pending. At the end of the call the grant becomes valid (Ledger::settle()) or is rolled back.
#pragma once

#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/node_rails.hpp"

namespace hook {

// Writes the HCAs of the plan into the ledger, pending until Booking::finish(). For a plan without HCAs it writes
// nothing. views: names of the views that the container mounts, as set_views().
Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who, const std::vector<std::string>& views);

// Returns true if an earlier call granted HCAs to this container and no call is changing the grant. Such a container
// may be running. Errors: the ledger's.
Result<bool> was_allocated_before(const Ledger& ledger, const Grantee& who);

// Rolls the new grant back when this object ends, unless finish() was called. A container that had its grant before
// this call keeps it, because it may be running. A grant that cannot be rolled back stays pending, and the next call
// tries again after this process has ended. All arguments must outlive this object.
class Booking {
 public:
  Booking(const Ledger& ledger, const Grantee& who, const NodeRails& rails, const Log& log, bool had_before)
      : ledger_(ledger), who_(who), rails_(rails), log_(log), had_before_(had_before) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking();
  // Keeps the grant, and settles it.
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
