#include "base/process/mountinfo.hpp"

#include <string>

#include "base/text.hpp"

namespace base {

namespace {

// Returns the text up to the separator, and removes both from `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const auto [first, others] = split_first(rest, separator);
  rest = others;
  return first;
}

}  // namespace

std::optional<MountLine> parse_mount_line(std::string_view line) {
  const auto id = parse_number<std::uint64_t>(take(line, ' '));
  const auto parent = parse_number<std::uint64_t>(take(line, ' '));
  if (!id || !parent) return std::nullopt;
  take(line, ' ');  // the number of the device
  MountLine mount{.id = *id, .parent = *parent, .root = take(line, ' '), .point = take(line, ' ')};
  take(line, ' ');  // the options of the mount
  while (!line.empty()) {
    const std::string_view field = take(line, ' ');
    if (field == "-") break;
    mount.shared = mount.shared || field.starts_with("shared:");
  }
  mount.type = take(line, ' ');
  take(line, ' ');  // the source
  mount.super_options = take(line, ' ');
  return mount;
}

std::optional<MountLine> find_mount(std::string_view mountinfo, std::uint64_t id) {
  const std::string start = std::to_string(id) + ' ';
  while (!mountinfo.empty()) {
    const std::string_view line = take(mountinfo, '\n');
    if (line.starts_with(start)) return parse_mount_line(line);
  }
  return std::nullopt;
}

std::string unescape_mount(std::string_view field) {
  std::string result;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const bool escaped = field[i] == '\\' && i + 3 < field.size();
    const auto code = escaped ? parse_number<unsigned char>(field.substr(i + 1, 3), 8) : std::nullopt;
    result.push_back(code ? static_cast<char>(*code) : field[i]);
    if (code) i += 3;
  }
  return result;
}

}  // namespace base
