#include "base/text.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

namespace {

using Names = std::vector<std::string>;

TEST(ParseNumber, AcceptsOnlyACompleteNumber) {
  EXPECT_EQ(base::parse_number<unsigned>("0"), 0U);
  EXPECT_EQ(base::parse_number<unsigned>("4294967295"), 4294967295U);
  EXPECT_EQ(base::parse_number<int>("-1"), -1);
  EXPECT_EQ(base::parse_number<std::uint64_t>("00000000a80425fb", 16), 0xa80425fbULL);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "4294967296", "1x", "0x1", "1.0"})
    EXPECT_FALSE(base::parse_number<unsigned>(text)) << text;
}

TEST(ParseDecimal, AcceptsOnlyDecimalRates) {
  for (const auto& [text, value] : {std::pair("400", 400.0), {"2.5", 2.5}, {"0", 0}, {"0.125", 0.125}, {"10.0", 10}})
    EXPECT_DOUBLE_EQ(base::parse_decimal(text).value_or(-1), value) << text;
  for (const char* text : {"", ".", ".5", "5.", "-1", "+1", "1e3", "inf", "nan", "1,5", "1.5.5", " 1", "0x10",
                           "99999999999999999999", "1.5 "}) {
    EXPECT_FALSE(base::parse_decimal(text)) << text;
  }
  EXPECT_NEAR(base::parse_decimal("1." + std::string(1000, '9')).value_or(-1), 2, 1e-9) << "a long fraction is read";
}

TEST(Trim, RemovesBlanksAtBothEnds) {
  EXPECT_EQ(base::trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(base::trim("\n"), "");
  EXPECT_EQ(base::trim(""), "");
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(base::split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(base::split("", ','), (Parts{""}));
  EXPECT_EQ(base::split(",", ','), (Parts{"", ""}));
  EXPECT_EQ(base::join({"a", "b"}, ", "), "a, b");
  EXPECT_EQ(base::join({}, ","), "");
}

TEST(GlobMatch, MatchesStarsOnly) {
  const std::tuple<const char*, const char*, bool> rows[] = {{"mlx5_1", "mlx5_1", true},
                                                             {"mlx5_1", "mlx5_10", false},
                                                             {"mlx5_*", "mlx5_10", true},
                                                             {"mlx5_*", "mlx5_", true},
                                                             {"*", "", true},
                                                             {"", "", true},
                                                             {"", "a", false},
                                                             {"*0", "mlx5_10", true},
                                                             {"*_*_*", "a_b_c", true},
                                                             {"*_*_*", "a_b", false},
                                                             {"a*b*c", "abxbc", true},
                                                             {"a*b*c", "abxb", false},
                                                             {"m?x5", "mlx5", false},
                                                             {"[m]", "m", false},
                                                             {"**a**", "a", true},
                                                             {"a*", "b", false}};
  for (const auto& [pattern, text, matches] : rows)
    EXPECT_EQ(base::glob_match(pattern, text), matches) << pattern << " " << text;
  std::string pattern;  // exponential backtracking would not end
  for (int i = 0; i < 2000; ++i)
    pattern += "*a";
  EXPECT_FALSE(base::glob_match(pattern + "b", std::string(20000, 'a')));
}

TEST(NaturalLess, OrdersNumbersByValue) {
  Names names = {"mlx5_10", "mlx5_2", "ibp12s0", "mlx5_1", "mlx5_bond_0", "ibp2s0",
                 "mlx5_01", "eth",    "mlx5_",   "1",      "01"};
  std::sort(names.begin(), names.end(), base::natural_less);
  EXPECT_EQ(names, (Names{"01", "1", "eth", "ibp2s0", "ibp12s0", "mlx5_", "mlx5_01", "mlx5_1", "mlx5_2", "mlx5_10",
                          "mlx5_bond_0"}));
  EXPECT_TRUE(base::natural_less("a" + std::string(50, '9'), "a1" + std::string(50, '0')))
      << "numbers above any integer type";
}

// std::sort() without a strict weak order is undefined behaviour, and the names come from devices.
TEST(NaturalLess, IsAStrictWeakOrder) {
  std::mt19937 random(7);
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) {
    std::string name;
    for (std::size_t length = random() % 6; length > 0; --length)
      name += "001a_\xff"[random() % 6];
    names.push_back(name);
  }
  for (const auto& a : names) {
    EXPECT_FALSE(base::natural_less(a, a));
    for (const auto& b : names) {
      EXPECT_FALSE(base::natural_less(a, b) && base::natural_less(b, a));
      EXPECT_TRUE(a == b || base::natural_less(a, b) || base::natural_less(b, a)) << a << " " << b;
      for (const auto& c : names) {
        if (base::natural_less(a, b) && base::natural_less(b, c)) {
          EXPECT_TRUE(base::natural_less(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

TEST(OneLine, ReplacesControlCharactersAndInvalidUtf8) {
  const std::tuple<const char*, std::string_view, std::string_view> rows[] = {
      {"plain", "mlx5_0 $HOME;'\"", "mlx5_0 $HOME;'\""},
      {"escape", "\x1b[31mred", "?[31mred"},
      {"newline", "a\nb\r\tc", "a?b??c"},
      {"delete", "a\x7f", "a?"},
      {"zero", std::string_view("a\0b", 3), "a?b"},
      {"umlaut", "\xc3\xa4", "\xc3\xa4"},
      {"four bytes", "\xf0\x9f\x9a\x80", "\xf0\x9f\x9a\x80"},
      {"C1 control",
       "\xc2\x9b"
       "31m",
       "?31m"},
      {"no-break space stays", "\xc2\xa0", "\xc2\xa0"},
      {"lone continuation", "\x80\xbf", "??"},
      {"cut sequence", "\xe2\x82", "??"},
      {"bad continuation", "\xe2\x28\xa1", "?(?"},
      {"latin-1", "caf\xe9", "caf?"},
      {"overlong two bytes", "\xc0\x80", "??"},
      {"highest code point", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
      {"invalid lead", "\xff\xfe", "??"},
      {"overlong C1 control", "\xe0\x82\x9b", "???"},
      {"overlong escape", "\xe0\x80\x9b", "???"},
      {"surrogate", "\xed\xa0\x80", "???"},
      {"overlong in four bytes", "\xf0\x80\x80\x9b", "????"},
      {"beyond U+10FFFF", "\xf4\x90\x80\x80", "????"}};
  for (const auto& [name, text, expected] : rows)
    EXPECT_EQ(base::one_line(text), expected) << name;
}

TEST(OneLine, ReplacesBidirectionalControls) {
  for (const std::string_view control : {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b", "\u202c",
                                         "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}) {
    EXPECT_EQ(base::one_line(fmt::format("a{}b", control)), "a?b");
    EXPECT_EQ(base::printable(fmt::format("a{}b", control)), "a?b");
  }
  // The neighbouring code points, and text in right-to-left scripts, are kept.
  constexpr std::string_view kKept = "\u061b\u061d\u200d\u2010\u2027\u202f\u2065\u206a\u05d0\u0627";
  EXPECT_EQ(base::one_line(kKept), kKept);
}

TEST(Printable, EscapesShellCharacters) {
  EXPECT_EQ(base::printable("mlx5_0, /run/netns/cni-1:a=b#[x]{y}*?!~%@\\"),
            "mlx5_0, /run/netns/cni-1:a=b#[x]{y}*?!~%@\\");
  EXPECT_EQ(base::printable("x:$(`a`);|&<>'\"\n"), "x:\\x24\\x28\\x60a\\x60\\x29\\x3b\\x7c\\x26\\x3c\\x3e\\x27\\x22?");
  EXPECT_EQ(base::printable(base::printable("$x")), "\\x24x");
  EXPECT_EQ(base::printable("abc", 3), "abc");
  EXPECT_EQ(base::printable("abcd", 3), "abc");
  EXPECT_EQ(base::printable("a\u20acb", 3), "a") << "no half character";
  EXPECT_EQ(base::printable("a\u20acb", 4), "a\u20ac");
  EXPECT_EQ(base::printable("ab$", 5), "ab") << "no half escape";
}

TEST(ErrnoNames, AreConvertedInBothDirections) {
  EXPECT_EQ(base::errno_name(EINVAL), "EINVAL");
  EXPECT_EQ(base::errno_name(2000), "E2000");
  for (int code = 1; code <= 133; ++code)
    EXPECT_EQ(base::errno_number(base::errno_name(code)), code) << base::errno_name(code);
  EXPECT_EQ(base::errno_number("E2000"), 2000);
  EXPECT_EQ(base::errno_number("E2BIG"), E2BIG);
  for (const char* name : {"", "E", "EINVALID", "einval", "22", "E0", "E-1", "E4096", "E99999999999"})
    EXPECT_FALSE(base::errno_number(name)) << name;
  // Python's errno.errorcode has ENOTSUP for 95, and <errno.h> has all three names.
  EXPECT_EQ(base::errno_number("ENOTSUP"), EOPNOTSUPP);
  EXPECT_EQ(base::errno_number("EWOULDBLOCK"), EAGAIN);
  EXPECT_EQ(base::errno_number("EDEADLOCK"), EDEADLK);
}

TEST(IsUtf8, AcceptsCompleteSequencesOnly) {
  for (const char* text : {"", "a\n", "\xc3\xa9", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(base::is_utf8(text)) << text;
  for (const char* text : {"\xf8", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_FALSE(base::is_utf8(text));
}

}  // namespace
