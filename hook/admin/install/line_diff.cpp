#include "hook/admin/install/line_diff.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/text.hpp"

namespace hook {
namespace {

using Lines = std::vector<std::string_view>;

// Limit of the entries in the table of common_lengths(). If two texts need a larger table, all lines from the first to
// the last difference are reported as one hunk.
constexpr std::size_t kLargestTable = std::size_t{4} << 20;
constexpr std::size_t kContext = 3;

// One change: lines [begin, end) of the old text are replaced by lines [new_begin, new_end) of the new text.
struct Hunk {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t new_begin = 0;
  std::size_t new_end = 0;
};

// Returns the lines, each with its newline. If the text does not end with a newline, the last line has none.
Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

// Returns a table for the lines of `part`. Entry (i, j) is the length of the longest common subsequence of the old
// lines from i on and the new lines from j on. The table has a row for each old line and one row after the last line.
std::vector<std::uint32_t> common_lengths(const Lines& from, const Lines& to, const Hunk& part) {
  const std::size_t width = part.new_end - part.new_begin + 1;
  std::vector<std::uint32_t> common((part.end - part.begin + 1) * width);
  for (std::size_t i = part.end - part.begin; i-- > 0;)
    for (std::size_t j = width - 1; j-- > 0;)
      common[i * width + j] = from[part.begin + i] == to[part.new_begin + j]
                                  ? common[(i + 1) * width + j + 1] + 1
                                  : std::max(common[(i + 1) * width + j], common[i * width + j + 1]);
  return common;
}

std::vector<Hunk> compare(const Lines& from, const Lines& to) {
  Hunk part{0, from.size(), 0, to.size()};
  while (part.begin < part.end && part.new_begin < part.new_end && from[part.begin] == to[part.new_begin]) {
    ++part.begin;
    ++part.new_begin;
  }
  while (part.begin < part.end && part.new_begin < part.new_end && from[part.end - 1] == to[part.new_end - 1]) {
    --part.end;
    --part.new_end;
  }
  if (part.begin == part.end && part.new_begin == part.new_end) return {};
  const std::size_t width = part.new_end - part.new_begin + 1;
  if (part.end - part.begin + 1 > kLargestTable / width) return {part};
  const auto common = common_lengths(from, to, part);
  std::vector<Hunk> hunks;
  for (std::size_t i = 0, j = 0; i < part.end - part.begin || j < width - 1;) {
    const bool at_ends = i == part.end - part.begin || j == width - 1;
    if (!at_ends && from[part.begin + i] == to[part.new_begin + j]) {
      ++i;
      ++j;
      continue;
    }
    const std::size_t old_line = part.begin + i;
    const std::size_t new_line = part.new_begin + j;
    if (hunks.empty() || hunks.back().end != old_line || hunks.back().new_end != new_line)
      hunks.push_back({old_line, old_line, new_line, new_line});
    const bool removes = j == width - 1 || (!at_ends && common[(i + 1) * width + j] >= common[i * width + j + 1]);
    hunks.back().end += removes ? 1 : 0;
    hunks.back().new_end += removes ? 0 : 1;
    i += removes ? 1 : 0;
    j += removes ? 0 : 1;
  }
  return hunks;
}

void add_lines(char mark, const Lines& lines, std::size_t begin, std::size_t end, std::string& text) {
  for (std::size_t i = begin; i < end; ++i)
    text += fmt::format("{}{}{}", mark, lines[i], lines[i].ends_with('\n') ? "" : "\n\\ No newline at end of file\n");
}

// Returns a range of lines as "LINE,COUNT", as in the head of a hunk. If COUNT is 0, LINE is the line before the range.
std::string range(std::size_t begin, std::size_t end) {
  return fmt::format("{},{}", begin + (begin == end ? 0 : 1), end - begin);
}

// Returns whether a change of install and a later change touch the same lines. `begin` and `end` of both changes are
// lines of the text that install wrote.
bool overlaps(const Hunk& ours, const Hunk& other) {
  if (ours.begin == ours.end) return other.begin <= ours.begin && ours.begin <= other.end;
  return ours.begin < other.end && other.begin < ours.end;
}

}  // namespace

std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after) {
  const Lines from = lines_of(before ? *before : std::string_view());
  const Lines to = lines_of(after ? *after : std::string_view());
  const auto hunks = compare(from, to);
  if (hunks.empty() && before.has_value() == after.has_value()) return {};
  std::string text = fmt::format("--- {}\n+++ {}\n", before ? path : "/dev/null", after ? path : "/dev/null");
  for (std::size_t first = 0, next = 0; first < hunks.size(); first = next) {
    // Two changes are printed in one hunk if at most 2 * kContext lines are between them: their lines of context then
    // touch.
    for (next = first + 1; next < hunks.size() && hunks[next].begin - hunks[next - 1].end <= 2 * kContext;)
      ++next;
    const Hunk& last = hunks[next - 1];
    const std::size_t lead = std::min(kContext, hunks[first].begin);
    const std::size_t trail = std::min(kContext, from.size() - last.end);
    std::size_t line = hunks[first].begin - lead;
    text += fmt::format("@@ -{} +{} @@\n", range(line, last.end + trail),
                        range(hunks[first].new_begin - lead, last.new_end + trail));
    for (std::size_t i = first; i < next; line = hunks[i++].end) {
      add_lines(' ', from, line, hunks[i].begin, text);
      add_lines('-', from, hunks[i].begin, hunks[i].end, text);
      add_lines('+', to, hunks[i].new_begin, hunks[i].new_end, text);
    }
    add_lines(' ', from, line, last.end + trail, text);
  }
  return text;
}

std::optional<std::string> without_changes(std::string_view before, std::string_view after, std::string_view present) {
  const Lines old_lines = lines_of(before);
  const Lines lines = lines_of(after);
  const Lines present_lines = lines_of(present);
  struct Change {
    Hunk hunk;
    const Lines* source;
  };
  std::vector<Change> changes;
  const auto undo = compare(lines, old_lines);
  for (const Hunk& other : compare(lines, present_lines)) {
    if (std::ranges::any_of(undo, [&](const Hunk& ours) { return overlaps(ours, other); })) return std::nullopt;
    changes.push_back({other, &present_lines});
  }
  for (const Hunk& ours : undo)
    changes.push_back({ours, &old_lines});
  std::ranges::sort(changes, [](const Change& left, const Change& right) {
    return left.hunk.begin != right.hunk.begin ? left.hunk.begin < right.hunk.begin : left.hunk.end < right.hunk.end;
  });
  std::string text;
  const auto add = [&](const Lines& source, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      text += source[i];
  };
  std::size_t line = 0;
  for (const auto& [hunk, source] : changes) {
    add(lines, line, hunk.begin);
    add(*source, hunk.new_begin, hunk.new_end);
    line = hunk.end;
  }
  add(lines, line, lines.size());
  return text;
}

bool has_added_line(std::string_view before, std::string_view after, std::string_view present) {
  const auto bare_lines = [](std::string_view text) {
    std::set<std::string_view> lines;
    for (const std::string_view line : lines_of(text))
      lines.insert(base::trim(line));
    return lines;
  };
  const auto old_lines = bare_lines(before);
  const auto present_lines = bare_lines(present);
  const auto lines = bare_lines(after);
  return std::ranges::any_of(lines, [&](std::string_view line) {
    return !line.empty() && !old_lines.contains(line) && present_lines.contains(line);
  });
}

}  // namespace hook
