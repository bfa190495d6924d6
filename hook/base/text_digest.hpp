// Digests as file names for texts of any length.
#pragma once

#include <string>

namespace hook {

// Returns 32 hex digits. No attacker can find two texts with the same digits.
std::string text_digest(std::string text);

}  // namespace hook
