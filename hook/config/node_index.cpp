#include "hook/config/node_index.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kGroups = "#%";
constexpr std::size_t kShownName = 253;  // the longest name of a node in Kubernetes

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_name_character(char c) {
  return is_letter(c) || kDigits.find(c) != std::string_view::npos || c == '.' || c == '_' || c == '-';
}

// Returns the number that the pattern stands for in this name; nullopt: the pattern does not match.
std::optional<std::uint64_t> match(std::string_view pattern, std::string_view name) {
  const std::size_t at = pattern.find_first_of(kGroups);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = pattern.substr(0, at);
  const std::string_view after = pattern.substr(at + 1);
  if (name.size() < pattern.size() || !name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  const std::string_view number = name.substr(at, name.size() - before.size() - after.size());
  constexpr int kDecimal = 10;
  constexpr int kBase36 = 36;
  return base::parse_number<std::uint64_t>(number, pattern[at] == '#' ? kDecimal : kBase36);
}

// Returns the words of a name that follow the last word with a letter: {"10", "0", "3", "17"} for "ip-10-0-3-17".
std::vector<std::string_view> numbers_at_end(std::string_view name) {
  std::vector<std::string_view> numbers;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("-._", at), name.size());
    const std::string_view word = name.substr(at, end - at);
    if (std::ranges::any_of(word, is_letter)) {
      numbers.clear();
    } else if (!word.empty()) {
      numbers.push_back(word);
    }
    at = end + 1;
  }
  return numbers;
}

// Returns the name with `#` in place of the number at its end, or the name if it does not end with a number.
std::string pattern_for(std::string_view name) {
  const std::size_t digits = name.find_last_not_of(kDigits);
  std::string pattern(name.substr(0, digits + 1));
  return pattern.size() == name.size() ? pattern : pattern + "#";
}

// Names the object that a ConfigMap may have, with an entry that fits the name.
std::string remedy_for_name(std::string_view name, std::string_view entry) {
  const std::string shown_entry = is_node_pattern(entry) ? std::string(entry) : base::shown(name, kShownName);
  return fmt::format(
      "write \"node_index\" in config.json as an object with numbers of nodes, such as {{\"{}\": 0}} "
      "(rdma-init.json(5))",
      shown_entry);
}

Result<std::uint64_t> number_at_end(std::string_view name) {
  const auto number = trailing_number(name);
  if (!number)
    return Error{fmt::format("`{}` does not end with a number", base::shown(name, kShownName)), EINVAL,
                 remedy_for_name(name, name)};
  if (numbers_at_end(name).size() > 1)
    return Error{fmt::format("`{}` has several numbers after its last letter: another node's name can end with {} too",
                             base::shown(name, kShownName), *number),
                 EINVAL, remedy_for_name(name, pattern_for(name))};
  return *number;
}

Result<std::uint64_t> number_of_entry(const NodeIndex& by, std::string_view name) {
  const auto exact = by.names.find(std::string(name));
  if (exact != by.names.end() && name.find_first_of(kGroups) == std::string_view::npos) return exact->second;
  std::optional<std::uint64_t> index;
  std::string_view first;
  for (const auto& [pattern, lowest] : by.names) {
    const auto number = match(pattern, name);
    if (!number || *number > UINT64_MAX - lowest) continue;
    if (index)
      return Error{
          fmt::format("`{}` matches `{}` and `{}` of \"node_index\"", base::shown(name, kShownName), first, pattern),
          EINVAL, "add an entry with the whole name, which precedes patterns, or correct a pattern"};
    index = lowest + *number;
    first = pattern;
  }
  if (index) return *index;
  return Error{fmt::format("\"node_index\" has no entry for `{}`", base::shown(name, kShownName)), EINVAL,
               "add the name of the node, or a pattern that matches it, to \"node_index\" in config.json"};
}

}  // namespace

bool is_node_pattern(std::string_view text) {
  const auto groups = std::ranges::count_if(text, [](char c) { return kGroups.find(c) != std::string_view::npos; });
  return !text.empty() && text.size() <= kShownName && groups <= 1 && std::ranges::all_of(text, [](char c) {
    return is_name_character(c) || kGroups.find(c) != std::string_view::npos;
  });
}

std::optional<std::uint64_t> trailing_number(std::string_view name) {
  const std::size_t digits = name.find_last_not_of(kDigits);
  return base::parse_number<std::uint64_t>(name.substr(digits + 1));
}

bool has_several_numbers(std::string_view name) {
  const std::size_t first = name.find_first_of(kDigits);
  if (first == std::string_view::npos) return false;
  const std::size_t end = name.find_first_not_of(kDigits, first);
  return end != std::string_view::npos && name.find_first_of(kDigits, end) != std::string_view::npos;
}

Result<std::uint64_t> index_of_name(const NodeIndex& by, std::string_view name) {
  return by.by == NodeIndex::By::kNames ? number_of_entry(by, name) : number_at_end(name);
}

}  // namespace hook
