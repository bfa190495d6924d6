// What a grant has beyond the ledger's own files: whoever returns a grant, or drops what a dead process had booked,
// undoes that first. While it cannot be undone, the grant is held, so that nobody else gets an HCA whose netdev is
// still away.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

class GrantEffects {
 public:
  GrantEffects() = default;
  GrantEffects(const GrantEffects&) = delete;
  GrantEffects& operator=(const GrantEffects&) = delete;
  virtual ~GrantEffects() = default;
  // Undoes what this grant has beyond these HCAs. Nothing there is success, and must cost nothing. Called with the
  // key's lock held: must not ask for a lock of the ledger.
  virtual fabric::Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held) const = 0;
  fabric::Result<void> undo_all(const std::string& key) const { return undo_beyond(key, {}); }
};

}  // namespace hook
