// Small parsers for text from outside: what the kernel, an image or a user wrote.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fabric {

// The whole of text as an integer of type T; nullopt for anything else, overflow included.
template <std::integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || stop != end || text.empty()) return std::nullopt;
  return value;
}

// Digits with an optional fraction: "400", "2.5". No sign, exponent, infinity.
std::optional<double> parse_decimal(std::string_view text);

// The first two numbers of a version, whatever follows them: "7.3.4-amd64" is {7, 3}. nullopt: it does not begin so.
std::optional<std::pair<unsigned, unsigned>> version_of(std::string_view text);

std::string_view trim(std::string_view text);
// "a,,b" is {"a", "", "b"}; "" is {""}.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Shell glob with only '*'; linear in the product of the lengths whatever the pattern.
bool glob_match(std::string_view pattern, std::string_view text);
// Orders "mlx5_2" before "mlx5_10".
bool natural_less(std::string_view left, std::string_view right);
bool is_utf8(std::string_view text);
// A line for a terminal or a log: control characters and invalid UTF-8 become '?'.
std::string one_line(std::string_view text);
bool is_obeyed_by_shell(char c);
// What such a line may quote of a text that an image, a pod's author or a device chose: as one_line(), and what a shell
// would obey becomes "\x24" and the like, for a line may end up in a file that a shell reads.
std::string printable(std::string_view text);

// "EINVAL" for 22; "E999" for numbers glibc does not know.
std::string errno_name(int code);
// 22 for "EINVAL"; nullopt for unknown names.
std::optional<int> errno_number(std::string_view name);

}  // namespace fabric
