// Compares and merges texts by lines. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hook {

// Returns the changes as a unified diff with three lines of context, in the format of diff(1) -u and patch(1); an empty
// text if the texts are equal.
// before: nullopt if the file does not exist.
// after: nullopt if the file is removed.
std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after);

// Returns the text `present` without the changes of install, which lead from `before` to `after`. Returns nullopt if a
// later change touches the same lines, because the changes of install then cannot be separated from it.
std::optional<std::string> without_changes(std::string_view before, std::string_view after, std::string_view present);

// Returns whether `present` has a line that is in `after` but not in `before`. Blank lines do not count.
bool has_added_line(std::string_view before, std::string_view after, std::string_view present);

}  // namespace hook
