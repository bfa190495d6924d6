// The form of an error that one process of a program returns to another: a JSON object with all members of Error.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace base {

// U+FFFD replaces invalid UTF-8.
std::string error_text(const Error& error);
// Returns the error of a text of error_text(); nullopt if it is no such text. The other process may have parsed hostile
// input, so nothing in the text is trusted.
std::optional<Error> parse_error(std::string_view text);

}  // namespace base
