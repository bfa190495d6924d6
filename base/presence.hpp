// The result of a lookup of an object that may end at any moment, such as a process. The object is proven gone if the
// lookup in the recorded directory fails with ENOENT or ESRCH, or finds another start time or another inode. Any other
// failure is an error and proves nothing.
#pragma once

#include "base/result.hpp"

namespace base {

enum class Presence { kPresent, kAbsent };

// Returns true only for a proven absence: after a failed lookup, the object counts as present.
inline bool is_proven_absent(const Result<Presence>& seen) {
  return seen && *seen == Presence::kAbsent;
}

}  // namespace base
