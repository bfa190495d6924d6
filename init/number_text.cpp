#include "init/number_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace init {
namespace {

constexpr std::uint64_t kExactDigits = std::uint64_t{1} << 53;  // a double represents each smaller integer
constexpr unsigned kExactPower = 22;                            // 10 to this power is a double without rounding
constexpr long kMaxExponent = 8191;  // beyond the range of a long double with 64 bits of digits

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the number at the start of the text, at most 100,000, and moves the text after it.
long read_digits(const char*& text) {
  long number = 0;
  for (; is_digit(*text); ++text)
    number = std::min(number * 10 + (*text - '0'), 100000L);
  return number;
}

// Returns digits * 10^exponent, or digits / 10^exponent.
template <typename Number>
double scaled(std::uint64_t digits, unsigned exponent, bool divide) {
  Number power = 1;
  Number factor = 10;
  for (; exponent != 0; exponent >>= 1, factor *= factor) {
    if ((exponent & 1) != 0) power *= factor;
  }
  const auto number = static_cast<Number>(digits);
  return static_cast<double>(divide ? number / power : number * power);
}

}  // namespace

int print_numbers(char* to, std::size_t size, const char* format, va_list arguments) {
  std::size_t length = 0;
  const auto put = [&](char c) {
    if (length + 1 < size) to[length] = c;
    ++length;
  };
  for (; *format != '\0'; ++format) {
    if (*format != '%') {
      put(*format);
      continue;
    }
    ++format;
    const bool has_width = *format == '0' || *format == '.';
    if (has_width) ++format;
    long width = has_width ? read_digits(format) : 0;
    if (*format != 'u' && *format != 'x' && *format != 'X') std::abort();
    std::array<char, 16> text{};
    const auto written = std::to_chars(text.begin(), text.end(), va_arg(arguments, unsigned), *format == 'u' ? 10 : 16);
    const std::string_view number(text.data(), static_cast<std::size_t>(written.ptr - text.data()));
    for (width -= static_cast<long>(number.size()); width > 0; --width)
      put('0');
    for (const char c : number)
      put(*format == 'X' && c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  if (size > 0) to[std::min(length, size - 1)] = '\0';
  return static_cast<int>(length);
}

double read_json_number(const char* text, char** end) {
  const bool negative = *text == '-';
  if (negative) ++text;
  std::uint64_t digits = 0;
  long exponent = 0;
  bool after_point = false;
  for (; is_digit(*text) || (*text == '.' && !after_point); ++text) {
    if (*text == '.') {
      after_point = true;
    } else if (digits < UINT64_MAX / 10 - 1) {
      digits = digits * 10 + static_cast<std::uint64_t>(*text - '0');
      exponent -= after_point ? 1 : 0;
    } else {
      exponent += after_point ? 0 : 1;
    }
  }
  if (*text == 'e' || *text == 'E') {
    ++text;
    const bool below_one = *text == '-';
    if (*text == '-' || *text == '+') ++text;
    const long written = read_digits(text);
    exponent += below_one ? -written : written;
  }
  *end = const_cast<char*>(text);
  const auto power = static_cast<unsigned>(std::min(std::labs(exponent), kMaxExponent));
  const bool is_exact = digits < kExactDigits && power <= kExactPower;
  const double number = digits == 0 ? 0
                        : is_exact  ? scaled<double>(digits, power, exponent < 0)
                                    : scaled<long double>(digits, power, exponent < 0);
  return negative ? -number : number;
}

}  // namespace init
