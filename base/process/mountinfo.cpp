#include "base/process/mountinfo.hpp"

#include "base/text.hpp"

namespace base {

std::optional<MountLine> parse_mount_line(std::string_view line) {
  constexpr std::size_t kFirstOptional = 6;
  const auto fields = split(line, ' ');
  const auto field = [&](std::size_t at) { return at < fields.size() ? fields[at] : std::string_view(); };
  const auto id = parse_number<std::uint64_t>(field(0));
  const auto parent = parse_number<std::uint64_t>(field(1));
  if (!id || !parent) return std::nullopt;
  MountLine mount{.id = *id, .parent = *parent, .root = field(3), .point = field(4)};
  std::size_t dash = kFirstOptional;
  for (; dash < fields.size() && fields[dash] != "-"; ++dash)
    mount.shared = mount.shared || fields[dash].starts_with("shared:");
  mount.type = field(dash + 1);
  mount.super_options = field(dash + 3);
  return mount;
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
