#include "hook/plan/context_ids.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"

namespace hook {

ContextIds::ContextIds(std::initializer_list<std::uint32_t> ids) {
  for (const std::uint32_t id : ids)
    add(id);
}

bool ContextIds::add(Range range) {
  if (range.last < range.first || (!empty() && range.first <= ranges_.back().last)) return false;
  if (!empty() && range.first - 1 == ranges_.back().last) {
    ranges_.back().last = range.last;
  } else {
    ranges_.push_back(range);
  }
  return true;
}

bool ContextIds::add(std::uint32_t id) {
  return add(Range{id, id});
}

bool ContextIds::contains(std::uint32_t id) const {
  const auto after = std::ranges::upper_bound(ranges_, id, {}, &Range::first);
  return after != ranges_.begin() && id <= (after - 1)->last;
}

std::string ContextIds::text() const {
  std::string text;
  for (const Range& range : ranges_) {
    if (!text.empty()) text += ',';
    text += range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
  }
  return text;
}

std::optional<ContextIds> ContextIds::parse(std::string_view text) {
  ContextIds ids;
  if (text.empty()) return ids;
  for (const std::string_view part : base::split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = base::parse_number<std::uint32_t>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : base::parse_number<std::uint32_t>(part.substr(dash + 1));
    if (!first || !last || !ids.add(Range{*first, *last})) return std::nullopt;
  }
  return ids;
}

}  // namespace hook
