// Parses /proc/PID/mountinfo (proc_pid_mountinfo(5)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/base.hpp"

namespace base {

// The used fields of "36 35 98:0 ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS". A missing one is empty.
struct MountLine {
  std::uint64_t id = 0;
  std::uint64_t parent = 0;
  std::string_view root;   // escaped like `point`
  std::string_view point;  // unescape_mount() decodes it
  bool shared = false;     // an optional field is "shared:N"
  std::string_view type = {};
  std::string_view super_options = {};
};
// Returns nullopt if the line does not begin with two numbers.
std::optional<MountLine> parse_mount_line(std::string_view line);

// Returns the line of the mount with this id in the text of a mountinfo, or nullopt if there is none. Parses no other
// line, because a mountinfo may be long.
std::optional<MountLine> find_mount(std::string_view mountinfo, std::uint64_t id);

// Decodes a field: it has `\` and three octal digits for a space, tab, newline or backslash.
std::string unescape_mount(std::string_view field);

}  // namespace base
