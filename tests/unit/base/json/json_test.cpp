#include "base/json/json.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json/error.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using test_support::must;

// Returns a text with this number of values, including the list.
std::string many_values(int count) {
  std::string text = "[0";
  for (int i = 2; i < count; ++i)
    text += ",0";
  return text + "]";
}

std::string nested(int levels, const char* open, const char* close) {
  std::string text;
  for (int i = 0; i < levels; ++i)
    text += open;
  for (int i = 0; i < levels; ++i)
    text += close;
  return text;
}

// A parsed text is written unchanged: order, unknown members, 64-bit integers.
TEST(HookJson, KeepsDocumentUnchanged) {
  for (const char* text : {
           R"({"z":1,"a":{"y":[],"b":{}},"m":null})",
           R"([18446744073709551615,-9223372036854775808,9223372036854775807,0,-1])",
           R"({"":"","key with / and ~":[true,false,[[1,[2]]]]})",
           R"("top")",
           R"(["\u0000","😀"])",
       }) {
    SCOPED_TRACE(text);
    EXPECT_EQ(must(parse_json(text, "it")).dump(), text);
    EXPECT_EQ(to_text(must(parse_json(text, "it"))), text);
  }
  // Also with many members.
  Json expected = Json::object();
  for (int i = 0; i < 500; ++i)
    expected.push_back({"key" + std::to_string((i * 37) % 500), i});
  EXPECT_EQ(must(parse_json(expected.dump(), "it")).dump(), expected.dump());
}

// Changes each byte of a document, or removes it: the text is accepted if nlohmann's parser accepts it, with the same
// values. No change makes a key of the document occur twice.
TEST(HookJson, AcceptsTextsThatNlohmannAccepts) {
  const std::string document =
      "{\"a\":[1,-2,3.5e2,0,18446744073709551615,\"x\\u0041\\n\\ud83d\\ude00\",\"\xc3\xa9\",\"\",{},[]],\n"
      "\"bb\": {\"cc\":\"d e\"} , \"zzz\" :true,\"q\":\"\\\"\",\"n\":-0,\"m\":null,\"d\":false}";
  const auto check = [](const std::string& text) {
    const auto parsed = parse_json(text, "it");
    const Json expected = Json::parse(text, nullptr, false);
    ASSERT_EQ(parsed.has_value(), !expected.is_discarded()) << text;
    if (!parsed) return;
    ASSERT_EQ(parsed->dump(), expected.dump()) << text;
    ASSERT_EQ(to_text(*parsed), expected.dump()) << text;
  };
  check(document);
  for (std::size_t at = 0; at < document.size(); ++at) {
    std::string text = document;
    text.erase(at, 1);
    check(text);
    for (const char c : std::string("{}[]\",:\\ \n\x01\x7f\xc3\xff"
                                    "0-+.eu/")) {
      text = document;
      text[at] = c;
      check(text);
    }
  }
}

TEST(HookJson, ErrorsNameLineAndColumn) {
  std::string many = "{\n";
  for (int i = 0; i < 100; ++i)
    many += "\"k" + std::to_string(i) + "\":0,\n";
  const std::tuple<const char*, std::string, const char*> rows[] = {
      {"empty", "",
       "it, line 1, column 1: syntax error while parsing value - unexpected end of input; expected '[', '{', or a "
       "literal"},
      {"twice", "{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "it, line 3: the key `a` occurs twice"},
      {"twice, escaped", R"({"a":1,"\u0061":2})", "it, line 1: the key `a` occurs twice"},
      {"twice, below", "{\"a\":\n{\"b\":1,\n\"b\":1}}", "it, line 3: the key `b` occurs twice"},
      {"twice, in a large object", many + "\"k7\":0}", "it, line 102: the key `k7` occurs twice"},
      {"twice, the first of a large object", many + "\"k0\":0}", "it, line 102: the key `k0` occurs twice"},
      {"twice, no terminal's business", "{\"\\u001b[2J\":1,\"\\u001b[2J\":2}",
       "it, line 1: the key `?[2J` occurs twice"},
      {"comment", "{\n// no\n}",
       "it, line 2, column 1: syntax error while parsing object key - invalid literal; last read: "
       "'{\\x3cU+000A\\x3e/'; expected string literal"},
      {"a shell's business",
       R"(["'; expected $(id))"
       "\x01",
       "it, line 1, column 20: syntax error while parsing value - invalid string: control character U+0001 (SOH) must "
       "be escaped "
       "to \\u0001; last read: '\\x22\\x27\\x3b expected \\x24\\x28id\\x29\\x3cU+0001\\x3e'"},
      {"two documents", "{}\n{}",
       "it, line 2, column 1: syntax error while parsing value - unexpected '{'; expected end of input"},
      {"behind a NUL byte", std::string("{}\n\0{\"a\":1}", 11), "it, line 2: a NUL byte"},
      {"overflow", "[1,\n1e999\n]", "it, line 2: number overflow parsing '1e999'"},
      {"too many values", many_values((1 << 18) + 1), "it, line 1: more than 262144 values"},
      {"too deep", nested(65, "[\n", "]"), "it, line 65: nested deeper than 64 levels"},
      {"too deep, objects", nested(65, "{\"a\":\n", "}"), "it, line 65: nested deeper than 64 levels"}};
  for (const auto& [name, text, message] : rows) {
    SCOPED_TRACE(name);
    EXPECT_EQ(parse_json(text, "it").error().message, message);
  }
}

TEST(HookJson, EnforcesLimits) {
  EXPECT_TRUE(parse_json(nested(64, "[", "]"), "it"));
  EXPECT_TRUE(parse_json("[1]", "it", {.bytes = 3, .depth = 1}));
  EXPECT_EQ(parse_json("[11]", "it", {.bytes = 3, .depth = 1}).error().message, "it: longer than 3 bytes");
  // A recursive parser would overflow its stack.
  EXPECT_FALSE(parse_json(std::string(std::size_t{8} << 20, '['), "it"));
  // Quotations are cut.
  EXPECT_LT(parse_json("[\"" + std::string(std::size_t{1} << 20, 'x'), "it").error().message.size(), 300U);
  // A linear search of all members for each new one would take minutes.
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += "\"" + std::to_string(i) + "\":0,";
  text += "\"last\":0}";
  EXPECT_EQ(must(parse_json(text, "it")).size(), 100'001U);
}

TEST(HookJson, FindsLinesByPointer) {
  const auto lines =
      base::json_lines("{\n \"pools\": [\n  {\"name\": 1,\n   \"a/b~c\": [true,\n 2\n,\n{}]}\n ],\n \"x\":\n7}");
  const base::JsonLines expected = {{"", 1},
                                    {"/pools", 2},
                                    {"/pools/0", 3},
                                    {"/pools/0/name", 3},
                                    {"/pools/0/a~1b~0c", 4},
                                    {"/pools/0/a~1b~0c/0", 4},
                                    {"/pools/0/a~1b~0c/1", 5},
                                    {"/pools/0/a~1b~0c/2", 7},
                                    {"/x", 10}};
  EXPECT_EQ(lines, expected);
  EXPECT_TRUE(base::json_lines("{").empty());
}

TEST(HookJson, ReadsRegularFilesWithinLimit) {
  const test_support::TempDir dir;
  test_support::write_file(dir / "fits", "12345");
  test_support::write_file(dir / "long", "123456");
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);

  const JsonLimits five = {.bytes = 5};
  EXPECT_EQ(must(base::read_text_file(dir / "fits", five)), "12345");
  const auto error_of = [&](const char* name) {
    const auto text = base::read_text_file(dir / name, five);
    return text ? "read" : text.error().message;
  };
  EXPECT_EQ(error_of("long"), "`" + (dir / "long") + "` is longer than 5 bytes");
  EXPECT_EQ(error_of(""), "`" + (dir / "") + "` is no regular file");
  EXPECT_EQ(error_of("fifo"), "`" + (dir / "fifo") + "` is no regular file");
  EXPECT_EQ(error_of("none"), "open `" + (dir / "none") + "`: No such file or directory");
  EXPECT_EQ(base::read_text_file(dir / "none").error().code, ENOENT);
}

// The limit holds while the other end still writes, and has its own errno.
TEST(HookJson, RefusesPipeThatIsTooLongOrDoesNotEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "{}", 2), 2);
  EXPECT_EQ(base::read_text_fd(ends[0], 100, 20, "stdin").error().message,
            "cannot read stdin: it has not ended after 20 ms");
  ASSERT_EQ(::write(ends[1], "123456", 6), 6);
  const auto text = base::read_text_fd(ends[0], 5, 1000, "stdin");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "stdin is longer than 5 bytes");
  EXPECT_EQ(text.error().code, EFBIG);
  ASSERT_EQ(::write(ends[1], "12345", 5), 5);
  ::close(ends[1]);
  EXPECT_EQ(must(base::read_text_fd(ends[0], 5, 1000, "stdin")), "12345");
  ::close(ends[0]);
}

TEST(ErrorText, KeepsAllMembers) {
  const auto error = base::parse_error(base::error_text({"no \xff\n", -5, "wait", base::FailureReason::kInternal}));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "no \xEF\xBF\xBD\n");
  EXPECT_EQ(error->code, -5);
  EXPECT_EQ(error->hint, "wait");
  EXPECT_EQ(error->reason, base::FailureReason::kInternal);
}

TEST(ErrorText, RefusesOtherTexts) {
  EXPECT_TRUE(base::parse_error(R"({"message": "", "code": 0, "hint": "", "reason": 11})"));
  for (const char* text : {"", "null", "[]", R"({"message": "", "code": 0, "hint": "", "reason": 12})",
                           R"({"message": "", "code": 0, "hint": "", "reason": -1})",
                           R"({"message": "", "code": "0", "hint": "", "reason": 1})", R"({"message": ""})"})
    EXPECT_FALSE(base::parse_error(text)) << text;
}

}  // namespace
