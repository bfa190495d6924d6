#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>

namespace base {
namespace {

constexpr int kMaxErrno = 4095;  // MAX_ERRNO, include/linux/err.h

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Moves `at` behind the digits that begin there, and returns them without leading zeros.
std::string_view take_number(const char*& at, const char* end) {
  while (at != end && *at == '0')
    ++at;
  const char* const first = at;
  while (at != end && is_digit(*at))
    ++at;
  return {first, static_cast<std::size_t>(at - first)};
}

// Returns the end of the digits that begin at a position.
std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at]))
    ++at;
  return at;
}

// Returns the length of the valid UTF-8 sequence at the start of text, 0 if there is none. Overlong forms, surrogates
// and values above U+10FFFF are not valid (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned lead = at(0);
  const unsigned second = at(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead < 0xf0) {
    const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0);
    return !bad && continues(1) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead < 0xf5) {
    const bool bad = (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
    return !bad && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

// Returns true if a terminal interprets or reorders the valid UTF-8 sequence: C0 and C1 controls, line and paragraph
// separators, and bidirectional controls (Unicode 15, UAX #9, table 1).
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7f;
  const auto is_from_to = [&](std::string_view first, std::string_view last) {
    return sequence.size() == first.size() && sequence >= first && sequence <= last;
  };
  return is_from_to("\xc2\x80", "\xc2\x9f") ||          // U+0080 to U+009F
         is_from_to("\xd8\x9c", "\xd8\x9c") ||          // U+061C
         is_from_to("\xe2\x80\x8e", "\xe2\x80\x8f") ||  // U+200E, U+200F
         is_from_to("\xe2\x80\xa8", "\xe2\x80\xae") ||  // U+2028 to U+202E
         is_from_to("\xe2\x81\xa6", "\xe2\x81\xa9");    // U+2066 to U+2069
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns the Levenshtein distance, ignoring case.
std::size_t distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(left[i]) == lower(right[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<double> parse_decimal(std::string_view text) {
  // from_chars() for double would add 40 kB of tables to a static program, so the digits are parsed here.
  const std::size_t point = text.find('.');
  const std::string_view fraction = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const auto whole = parse_number<std::uint32_t>(text.substr(0, point));
  if (!whole || (point != std::string_view::npos && fraction.empty())) return std::nullopt;
  double value = *whole;
  double weight = 1;
  for (const char c : fraction) {
    if (!is_digit(c)) return std::nullopt;
    weight /= 10;
    value += weight * (c - '0');
  }
  return value;
}

std::optional<std::pair<unsigned, unsigned>> version_of(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() < 2) return std::nullopt;
  const auto first = parse_number<unsigned>(parts[0]);
  const auto second = parse_number<unsigned>(parts[1].substr(0, parts[1].find_first_not_of("0123456789")));
  return first && second ? std::optional(std::pair(*first, *second)) : std::nullopt;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::pair<std::string_view, std::string_view> split_first(std::string_view text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  return {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1)));
}

std::string_view last_component(std::string_view path) {
  // memrchr() compares many bytes at once, rfind() one: a survey of a node with VFs reads hundreds of links.
  const void* const slash = path.empty() ? nullptr : ::memrchr(path.data(), '/', path.size());
  return slash ? path.substr(static_cast<std::size_t>(static_cast<const char*>(slash) - path.data()) + 1) : path;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string join_first(const std::vector<std::string>& parts, std::size_t most, std::string_view separator,
                       std::string_view before_rest) {
  if (parts.size() <= most) return join(parts, separator);
  const auto end = parts.begin() + static_cast<std::ptrdiff_t>(most);
  return fmt::format("{}{}and {} more", fmt::join(parts.begin(), end, separator), before_rest, parts.size() - most);
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  // After a mismatch, try a longer match for the last '*' only: a longer match for an earlier '*' cannot succeed where
  // this fails. So the cost is at most the product of the lengths.
  std::size_t star = std::string_view::npos;  // last '*' in the pattern, and the text position tried after it
  std::size_t retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

bool natural_less(std::string_view left, std::string_view right) {
  // Starts at the number that contains the first difference: a node with many VFs compares names some thousand times,
  // and most of them differ in one number only.
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
  std::size_t number = same;
  while (number > 0 && is_digit(left[number - 1]))
    --number;
  const std::size_t left_end = digits_end(left, same);
  const std::size_t right_end = digits_end(right, same);
  // Without leading zeros, the longer number is the larger one, at any length.
  if (number < left_end && number < right_end && left[number] != '0' && right[number] != '0') {
    if (left_end != right_end) return left_end < right_end;
    if (same < left_end) return left[same] < right[same];
  }
  const char* l = left.data() + number;
  const char* r = right.data() + number;
  const char* const l_end = left.data() + left.size();
  const char* const r_end = right.data() + right.size();
  while (l != l_end && r != r_end) {
    if (is_digit(*l) && is_digit(*r)) {
      const std::string_view l_number = take_number(l, l_end);
      const std::string_view r_number = take_number(r, r_end);
      if (l_number.size() != r_number.size()) return l_number.size() < r_number.size();
      if (const int order = l_number.compare(r_number); order != 0) return order < 0;
    } else {
      if (*l != *r) return *l < *r;
      ++l;
      ++r;
    }
  }
  if (l_end - l != r_end - r) return l_end - l < r_end - r;
  // "a01" and "a1" are equal up to here. A strict order must separate them.
  return left < right;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const auto* const rest = std::ranges::find_if_not(text, [](char c) { return c >= ' ' && c <= '~'; });
    const auto plain = static_cast<std::size_t>(rest - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::size_t length = utf8_length(text);
    if (length == 0 || is_control(text.substr(0, length))) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    // One invalid byte is replaced; the next byte may start a valid sequence.
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

bool is_obeyed_by_shell(char c) {
  switch (c) {
    case '`':
    case '$':
    case ';':
    case '|':
    case '&':
    case '<':
    case '>':
    case '(':
    case ')':
    case '\'':
    case '"':
      return true;
    default:
      return false;
  }
}

std::string printable(std::string_view text) {
  return printable(text, std::string::npos);
}

std::string printable(std::string_view text, std::size_t longest) {
  // Nearly all texts need no change.
  if (std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && !is_obeyed_by_shell(c); }))
    return std::string(text.substr(0, longest));
  std::string out;
  std::size_t whole = 0;  // size without the last character
  for (const char c : one_line(text)) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    if (!continues) whole = out.size();
    if (is_obeyed_by_shell(c)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    } else {
      out += c;
    }
    if (out.size() <= longest) continue;
    out.resize(whole);
    break;
  }
  return out;
}

std::string errno_name(int code) {
  const char* name = strerrorname_np(code);
  return name ? name : fmt::format("E{}", code);
}

std::optional<int> errno_number(std::string_view name) {
  // EWOULDBLOCK, EDEADLOCK and ENOTSUP are second names: strerrorname_np() returns the first name of their numbers
  // (asm-generic/errno.h, bits/errno.h).
  if (name == "EWOULDBLOCK") return EWOULDBLOCK;
  if (name == "EDEADLOCK") return EDEADLOCK;
  if (name == "ENOTSUP") return ENOTSUP;
  // EHWPOISON, 133, is the last number (asm-generic/errno.h).
  for (int code = 1; code < 134; ++code) {
    const char* known = strerrorname_np(code);
    if (known && name == known) return code;
  }
  // A number without a name: errno_name() writes it as "E999".
  if (name.empty() || name[0] != 'E') return std::nullopt;
  const auto number = parse_number<int>(name.substr(1));
  if (!number || *number < 1 || *number > kMaxErrno) return std::nullopt;
  return number;
}

std::string_view json_cause(std::string_view message) {
  constexpr std::string_view kPosition = "parse error at ";
  const auto end = message.starts_with("[json.exception") ? message.find("] ") : std::string_view::npos;
  if (end != std::string_view::npos) message.remove_prefix(end + 2);
  if (message.starts_with(kPosition)) message.remove_prefix(kPosition.size());
  return message;
}

std::string_view nearest_word(std::string_view text, std::span<const std::string_view> words) {
  // Texts above this length are not compared, because distance() takes time in proportion to the product of both
  // lengths.
  constexpr std::size_t kLongestWord = 64;
  std::string_view nearest;
  std::size_t least = kLongestWord;
  for (const std::string_view word : words) {
    const std::size_t apart = text.size() > kLongestWord ? kLongestWord : distance(text, word);
    if (apart >= least || apart > std::max<std::size_t>(1, word.size() / 3)) continue;
    least = apart;
    nearest = word;
  }
  return nearest;
}

}  // namespace base
