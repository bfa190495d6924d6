// What a look at something shows that may end at any moment. Absence is proven: by ENOENT or ESRCH where the directory
// is the one that it was noted of, by another start time, by another inode. Any other failure of a look is an error,
// and proves nothing.
#pragma once

#include "hook/base/result.hpp"

namespace hook {

enum class Presence { kPresent, kGone };

// For who decides what may be taken: what cannot be seen is held.
inline bool is_proven_gone(const Result<Presence>& seen) {
  return seen && *seen == Presence::kGone;
}

}  // namespace hook
