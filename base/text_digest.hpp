// Makes a digest of a text of any length. The digest is short enough for a file name.
#pragma once

#include <string>

#include "base/base.hpp"

namespace base {

// Returns 32 hex digits. An attacker cannot find two texts with the same digest.
std::string text_digest(std::string text);

}  // namespace base
