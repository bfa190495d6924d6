// The parts of printf() and strtod() of the static program, compared with those of the C library.
#include "init/number_text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace init {
namespace {

using Buffer = std::array<char, 64>;

int print(char* to, std::size_t size, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = print_numbers(to, size, format, arguments);
  va_end(arguments);
  return length;
}

double read(const std::string& text) {
  char* end = nullptr;
  const double number = read_json_number(text.c_str(), &end);
  EXPECT_STREQ(end, "") << text;
  return number;
}

TEST(PrintNumbers, WritesAsSnprintf) {
  const struct {
    const char* format;
    unsigned first;
    unsigned second;
  } rows[] = {{"%u.%u", 0, 4294967295},
              {"%x:%x", 0, 0xfe80},
              {"\\u%04x\\u%04x", 0x1f, 0xdc00},
              {"<U+%.4X>%u", 0xa, 7},
              {"%.2X-%.2X", 0x5, 0xabcde}};
  for (const auto& row : rows) {
    Buffer expected;
    const int length = std::snprintf(expected.data(), expected.size(), row.format, row.first, row.second);
    Buffer text;
    EXPECT_EQ(print(text.data(), SIZE_MAX, row.format, row.first, row.second), length) << row.format;
    EXPECT_STREQ(text.data(), expected.data());
  }
}

TEST(PrintNumbers, CutsTextAtTheEndOfTheBuffer) {
  Buffer text;
  text.fill('!');
  EXPECT_EQ(print(text.data(), 4, "%u", 123456U), 6);
  EXPECT_STREQ(text.data(), "123");
  EXPECT_EQ(text[4], '!');
  EXPECT_EQ(print(text.data(), 0, "%u", 5U), 1);
  EXPECT_STREQ(text.data(), "123");
}

TEST(PrintNumbersDeathTest, AbortsAtUnknownConversion) {
  Buffer text;
  for (const char* format : {"%s", "%d", "%lu", "%4x", "%"})
    EXPECT_DEATH(print(text.data(), text.size(), format, 1U), "") << format;
}

TEST(ReadJsonNumber, EqualsStrtod) {
  for (const char* text : {"0",
                           "-0",
                           "0.0",
                           "1",
                           "-1.5",
                           "3.25",
                           "0.1",
                           "12345678901234567890",
                           "123456789012345678901234567890",
                           "1e0",
                           "1E+5",
                           "2.5e-3",
                           "0.000001e6",
                           "1e22",
                           "1e23",
                           "9007199254740993",
                           "1.7976931348623157e308",
                           "1e-300",
                           "2.2250738585072014e-308",
                           "4.9406564584124654e-324",
                           "1e-400",
                           "0e99999999999",
                           "0.30000000000000004"}) {
    const double expected = std::strtod(text, nullptr);
    EXPECT_EQ(read(text), expected) << text;
    EXPECT_EQ(std::signbit(read(text)), std::signbit(expected)) << text;
  }
}

TEST(ReadJsonNumber, IsInfiniteBeyondTheRange) {
  for (const std::string& text : {std::string("1e309"), std::string("1e99999999999"), std::string(400, '9')})
    EXPECT_EQ(read(text), HUGE_VAL) << text;
  EXPECT_EQ(read("-1e400"), -HUGE_VAL);
  EXPECT_EQ(read("0." + std::string(500, '0') + "1e501"), 1);
}

TEST(ReadJsonNumber, EndsAfterTheNumber) {
  const char* text = "1.5.2";
  char* end = nullptr;
  EXPECT_EQ(read_json_number(text, &end), 1.5);
  EXPECT_STREQ(end, ".2");
}

TEST(ReadJsonNumber, IsRoundedAsPromised) {
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): the same numbers in each run
  for (int i = 0; i < 100000; ++i) {
    Buffer text;
    const auto digits = static_cast<double>(random() % 1000000000000000);
    std::snprintf(text.data(), text.size(), "%.0fe%d", digits, static_cast<int>(random() % 45) - 22);
    EXPECT_EQ(read(text.data()), std::strtod(text.data(), nullptr)) << text.data();
    std::snprintf(text.data(), text.size(), "%llu.%llue%d", static_cast<unsigned long long>(random()),
                  static_cast<unsigned long long>(random()), static_cast<int>(random() % 600) - 320);
    const double expected = std::strtod(text.data(), nullptr);
    const double number = read(text.data());
    EXPECT_TRUE(number == expected || std::nextafter(number, expected) == expected) << text.data();
  }
}

}  // namespace
}  // namespace init
