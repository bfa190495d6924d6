// Small parsers for text from untrusted sources: the kernel, an image or a user.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base.hpp"

namespace base {

// Parses the complete text as an integer of type T. Returns nullopt for any other text and on overflow.
template <std::integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || stop != end || text.empty()) return std::nullopt;
  return value;
}

// Parses digits with an optional fraction: "400", "2.5". Returns nullopt for a sign, an exponent or infinity.
std::optional<double> parse_decimal(std::string_view text);

// Returns the first two numbers of a version and ignores the rest: {7, 3} for "7.3.4-amd64". Returns nullopt if the
// text does not start with two numbers.
std::optional<std::pair<unsigned, unsigned>> version_of(std::string_view text);

// Returns the text without white space at both ends.
std::string_view trim(std::string_view text);
// Splits text: "a,,b" is {"a", "", "b"}, and "" is {""}.
std::vector<std::string_view> split(std::string_view text, char separator);
// Splits text at the first separator: "a=b=c" is {"a", "b=c"}, and "a" is {"a", ""}.
std::pair<std::string_view, std::string_view> split_first(std::string_view text, char separator);
// Returns the part of a message of nlohmann's parser that is for users: "[json.exception.parse_error.101] parse error
// at line 2, column 7: syntax error ..." gives "line 2, column 7: syntax error ...".
std::string_view json_cause(std::string_view message);
// Returns the word that a user who wrote `text` probably meant: the one that needs the fewest changed letters, case
// ignored. Returns an empty word if each word needs more than one changed letter and more than a third of its letters.
std::string_view nearest_word(std::string_view text, std::span<const std::string_view> words);
// Returns the directory of a path: "/a" for "/a/b", "/" for "/b", "." for "b".
std::string parent_of(std::string_view path);
// Returns the part of a path after its last '/'.
std::string_view last_component(std::string_view path);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Joins the first `most` parts, and appends before_rest and "and N more" if there are more.
std::string join_first(const std::vector<std::string>& parts, std::size_t most, std::string_view separator = ", ",
                       std::string_view before_rest = " ");
// Returns true if the text matches a shell glob with '*' only. The cost is at most proportional to the product of the
// lengths of pattern and text.
bool glob_match(std::string_view pattern, std::string_view text);
// Compares in natural order: "mlx5_2" is less than "mlx5_10".
bool natural_less(std::string_view left, std::string_view right);
bool is_utf8(std::string_view text);
// Returns text that is safe in a line for a terminal or a log: control characters and invalid UTF-8 become '?'.
std::string one_line(std::string_view text);
// Returns true for a character that a shell interprets, such as '$' or '`'.
bool is_obeyed_by_shell(char c);
// Returns untrusted text for quotation in a message: the result of one_line(), with each character of
// is_obeyed_by_shell() as "\x24" and the like. A message may end up in a file that a shell reads.
std::string printable(std::string_view text);
// Returns at most `longest` bytes of printable(text). Cuts neither a character nor an escape in two.
std::string printable(std::string_view text, std::size_t longest);

// Returns the name of an errno: "EINVAL" for 22, "E999" for numbers that glibc does not know.
std::string errno_name(int code);
// Returns the number of an errno name: 22 for "EINVAL", nullopt for unknown names.
std::optional<int> errno_number(std::string_view name);

}  // namespace base
