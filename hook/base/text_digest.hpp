// A name for a text of any length.
#pragma once

#include <string>

namespace hook {

// 32 hex digits, the same for no other text that anybody could find.
std::string text_digest(std::string text);

}  // namespace hook
