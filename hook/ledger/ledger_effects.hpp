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
  // Undoes everything of this grant but what belongs to these HCAs. Nothing there is success, and must cost nothing.
  // Called with the key's lock held: must not ask for a lock of the ledger.
  virtual fabric::Result<void> keep_only(const std::string& key, const std::vector<PlannedHca>& held) const = 0;
};

}  // namespace hook
