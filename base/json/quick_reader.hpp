// Reads JSON texts as programs write them: passes the values to a handler, several times faster than nlohmann's parser,
// which reads each byte of a text several times. The handler has the functions of nlohmann's SAX interface, except that
// key() and string() also take a std::string_view, a part of the text itself, and that start_object() and start_array()
// get the place of the bracket in the text. Before end_object() and end_array(), a handler that has ends_at() gets the
// place after the bracket.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "base/json/json_fwd.hpp"

namespace base {

// Returns true only if JSON writes the next 8 bytes of a text as they are: none is a control character, outside ASCII,
// a quote or a backslash. The subtraction of a byte can borrow from the next one: then the answer is false without a
// cause.
inline bool are_plain_8(const char* at) {
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  constexpr std::uint64_t kHigh = kOnes << 7U;
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  const auto has_less = [](std::uint64_t bytes, std::uint64_t than) { return (bytes - kOnes * than) & ~bytes; };
  const auto has = [&](char byte) { return has_less(word ^ kOnes * static_cast<unsigned char>(byte), 1); };
  return ((word | has_less(word, 0x20) | has('"') | has('\\')) & kHigh) == 0;
}

// The quick reader reads the structure, plain strings and plain integers itself, and leaves all other values to
// nlohmann's parser: other numbers, and strings with an escape or a character outside ASCII. The quick reader accepts
// no text that nlohmann's parser refuses. It may refuse further texts without a cause: nlohmann's parser then decides,
// and finds the cause.
template <typename Handler>
class QuickReader {
 public:
  QuickReader(std::string_view text, Handler& handler)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), handler_(handler) {}

  // Returns false if the text is refused or the handler returned false.
  bool read() { return value() && next() == '\0' && at_ == end_; }

 private:
  // Returns the next character that is no white space; '\0' at the end. A text has no NUL byte.
  char next() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r'))
      ++at_;
    return at_ == end_ ? '\0' : *at_;
  }
  bool take(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }

  std::size_t place() const { return static_cast<std::size_t>(at_ - begin_); }
  // Tells a handler that wants to know it where an object or array ends. Returns true.
  bool ended() {
    if constexpr (requires { handler_.ends_at(place()); }) handler_.ends_at(place());
    return true;
  }

  // The handler limits the depth of the recursion.
  bool value() {
    switch (next()) {
      case '{':
        return object();
      case '[':
        return array();
      case '"':
        return string([&](auto& text) { return handler_.string(text); });
      case 't':
        return word("true") && handler_.boolean(true);
      case 'f':
        return word("false") && handler_.boolean(false);
      case 'n':
        return word("null") && handler_.null();
      default:
        return number();
    }
  }

  bool object() {
    if (!handler_.start_object(place())) return false;
    ++at_;
    if (take('}')) return ended() && handler_.end_object();
    do {
      if (next() != '"' || !string([&](auto& name) { return handler_.key(name); })) return false;
      if (!take(':') || !value()) return false;
    } while (take(','));
    return take('}') && ended() && handler_.end_object();
  }

  bool array() {
    if (!handler_.start_array(place())) return false;
    ++at_;
    if (take(']')) return ended() && handler_.end_array();
    do {
      if (!value()) return false;
    } while (take(','));
    return take(']') && ended() && handler_.end_array();
  }

  bool word(std::string_view word) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // Reads a string and passes its text to `use`.
  bool string(auto use) {
    const char* const begin = at_++;
    bool plain = true;
    while (end_ - at_ >= 8 && are_plain_8(at_))
      at_ += 8;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte >= 0x20 && byte < 0x80 && byte != '\\') continue;
      plain = false;
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    ++at_;
    if (plain) {
      const std::string_view text(begin + 1, static_cast<std::size_t>(at_ - begin) - 2);
      return use(text);
    }
    Json parsed = Json::parse(begin, at_, nullptr, false);
    return parsed.is_string() && use(parsed.get_ref<std::string&>());
  }

  bool number() {
    constexpr int kDigits = 18;  // any number of so many digits fits into a 64-bit integer
    const char* const begin = at_;
    while (at_ != end_ &&
           ((*at_ >= '0' && *at_ <= '9') || *at_ == '-' || *at_ == '+' || *at_ == '.' || *at_ == 'e' || *at_ == 'E'))
      ++at_;
    std::uint64_t plain = 0;
    const auto [stop, failed] = std::from_chars(begin, at_, plain);
    const bool is_plain =
        failed == std::errc() && stop == at_ && at_ - begin <= kDigits && (*begin != '0' || at_ - begin == 1);
    if (is_plain) return handler_.number_unsigned(plain);
    const Json parsed = Json::parse(begin, at_, nullptr, false);
    if (parsed.is_number_unsigned()) return handler_.number_unsigned(parsed.get<std::uint64_t>());
    if (parsed.is_number_integer()) return handler_.number_integer(parsed.get<std::int64_t>());
    return parsed.is_number_float() && handler_.number_float(parsed.get<double>(), {});
  }

  const char* const begin_;
  const char* at_;
  const char* const end_;
  Handler& handler_;
};

}  // namespace base
