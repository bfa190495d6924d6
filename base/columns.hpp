// Lays out text for a terminal of 80 columns. A byte that continues a UTF-8 sequence takes no column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/base.hpp"

namespace base {

inline constexpr std::size_t kColumns = 80;

// Returns the number of columns of a text.
std::size_t columns_of(std::string_view text);
// Returns the text if it fits into `most` columns, which are at least 3, else its begin and "...".
std::string shortened(std::string_view text, std::size_t most);
// Appends the text and a line break. Breaks lines of kColumns at blanks, and inside a word only if it is longer than a
// line. first: the column at which the text begins. indent: the blanks in front of further lines.
void add_wrapped(std::string_view text, std::size_t first, std::size_t indent, std::string& out);

}  // namespace base
