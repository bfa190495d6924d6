// Compares and merges texts by lines. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hook {

// Returns the changes as a unified diff with three lines of context, as diff(1) -u and patch(1) have it; empty: the
// texts are equal. before: nullopt: the file does not exist. after: nullopt: it is removed.
std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after);

// Returns `present` without the changes that lead from `before` to `after`. Returns nullopt if lines of these changes
// were themselves changed: they cannot be found.
std::optional<std::string> without_changes(std::string_view before, std::string_view after, std::string_view present);

// Returns whether `present` has a line that `after` has and `before` does not. Blank lines do not count.
bool has_added_line(std::string_view before, std::string_view after, std::string_view present);

}  // namespace hook
