#include "hook/base/event_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestValue = 128;
constexpr std::size_t kLongestList = 512;

// Nothing that ends a value, begins another one, or that a reader could take for an escape or a shell obeys.
bool is_plain(char c) {
  return c > ' ' && c < 0x7f && c != '=' && c != '\\' && !fabric::is_obeyed_by_shell(c);
}

std::string quoted_if_needed(std::string_view value) {
  if (!value.empty() && std::all_of(value.begin(), value.end(), is_plain)) return std::string(value);
  std::string quoted;
  for (const char c : Json(std::string(value)).dump(-1, ' ', true, Json::error_handler_t::replace))
    quoted += c != '"' && fabric::is_obeyed_by_shell(c) ? fmt::format("\\u{:04x}", c) : std::string(1, c);
  return quoted;
}

}  // namespace

EventLine& EventLine::put(std::string_view key, std::string_view value) {
  if (text_.size() + key.size() + value.size() + 2 > kLongest) {
    ++left_out_;
    return *this;
  }
  text_ += ' ';
  text_ += key;
  text_ += '=';
  text_ += value;
  return *this;
}

EventLine& EventLine::add(std::string_view key, std::string_view value) {
  if (value.size() <= kLongestValue) return put(key, quoted_if_needed(value));
  return put(key, quoted_if_needed(std::string(value.substr(0, kLongestValue)) + "..."));
}

EventLine& EventLine::add(std::string_view key, std::uint64_t value) {
  return put(key, fmt::format_int(value).c_str());
}

EventLine& EventLine::add(std::string_view key, const std::vector<std::string>& values) {
  if (values.empty()) return *this;
  std::string list;
  std::size_t taken = 0;
  for (; taken < values.size() && (taken == 0 || list.size() + values[taken].size() < kLongestList); ++taken) {
    if (taken > 0) list += ',';
    list += std::string_view(values[taken]).substr(0, kLongestList);
  }
  if (taken < values.size()) list += fmt::format(",+{}", values.size() - taken);
  return put(key, quoted_if_needed(list));
}

std::string EventLine::text() const {
  return left_out_ == 0 ? text_ : fmt::format("{} left_out={}", text_, left_out_);
}

}  // namespace hook
