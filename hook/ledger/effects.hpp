#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/deadline.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// What a grant has beyond the ledger's own files. The ledger undoes that first when it returns a grant, or drops what a
// dead process had booked. While it cannot be undone, the grant is held, so that no other container gets an HCA whose
// netdev is still away.
class GrantEffects {
 public:
  GrantEffects() = default;
  GrantEffects(const GrantEffects&) = delete;
  GrantEffects& operator=(const GrantEffects&) = delete;
  virtual ~GrantEffects() = default;
  // Undoes what this grant has beyond these HCAs. Where there is nothing it succeeds, and must cost nothing. It is
  // called with the key's lock held, and must not ask for a lock of the ledger. grant: as it was until now; nullptr:
  // there is none of this key.
  virtual fabric::Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                           const StoredGrant* grant) const = 0;
  // From here on undo_beyond() waits for hardware, locks and other programs until then, if it would wait longer.
  virtual void wait_until(Deadline) const {}
};

// A grant that the ledger has returned, or that a container of a pod has left.
struct Released {
  Grant grant;                // as it was
  bool was_given = false;     // false: its start was killed half-way
  bool stays = false;         // a container has left; the pod's grant stays
  std::uint64_t undo_us = 0;  // how long GrantEffects::undo_beyond() took
};

}  // namespace hook
