#include "base/json/tree.hpp"

#include <gtest/gtest.h>

#include "base/json/json.hpp"
#include "support/results.hpp"

namespace {

using namespace hook;
using test_support::must;

// The tree of a text has the values of its document, and the document of the tree has the text.
TEST(JsonTree, HasTheValuesOfTheDocument) {
  for (const char* text : {
           R"({"z":1,"a":{"y":[],"b":{}},"m":null,"f":false,"t":true})",
           R"([18446744073709551615,-9223372036854775808,0,-1,1.5,1e3,-0.0])",
           R"({"":"","key with / and ~":[true,false,[[1,[2]]]]})",
           R"("top")",
           R"(["\u0000","😀","12345678","1234567\"","\\2345678","\u003c\u0026"])",
           R"({"\u0061b":"escaped name","ab c":1})",
       }) {
    const auto tree = must(base::parse_tree(text, "text"));
    EXPECT_EQ(base::to_document(tree.tree.root()), Json::parse(text)) << text;
    const auto again = base::tree_of(Json::parse(text));
    EXPECT_EQ(base::to_document(again.tree.root()), Json::parse(text)) << text;
  }
}

TEST(JsonTree, ReadsTextWithSpaces) {
  const std::string text = " {\n\t\"a\" : [ 1 , {\"b\":\"c\"} ] ,\r\n \"d\" : \"e\" } \n";
  const auto tree = must(base::parse_tree(text, "text"));
  const base::JsonNode& root = tree.tree.root();
  const base::JsonNode* list = root.find("a");
  ASSERT_TRUE(list && list->is_array());
  EXPECT_EQ(list->text, "[ 1 , {\"b\":\"c\"} ]");
  EXPECT_EQ(std::distance(list->begin(), list->end()), 2);
  EXPECT_EQ(list->begin()->number, 1U);
  ASSERT_TRUE(root.find("d"));
  EXPECT_EQ(root.find("d")->text, "e");
  EXPECT_FALSE(root.find("b"));
  EXPECT_FALSE(list->find("b")) << "an array has no members";
}

// The errors are those of parse_json(), with the line.
TEST(JsonTree, RefusesWhatTheParserRefuses) {
  std::string many = "{";
  for (int i = 0; i < 40; ++i)
    many += "\"k" + std::to_string(i) + "\":0,";
  many += "\"k3\":1}";
  const std::string texts[] = {
      "",    "{",     "{\"a\":1,\"a\":2}",     "[1,]",     "{\"a\" 1}", "[\"\x01\"]", "[\"\xff\"]", "[01]",
      "nul", "[1] 2", std::string("[1\0]", 4), "\"a\nb\"", many};
  for (const std::string& text : texts) {
    const auto expected = base::parse_json(text, "text");
    const auto tree = base::parse_tree(text, "text");
    ASSERT_FALSE(expected) << text;
    ASSERT_FALSE(tree) << text;
    EXPECT_EQ(tree.error().message, expected.error().message);
  }
  EXPECT_FALSE(base::parse_tree("[[[[1]]]]", "text", {.depth = 3}));
  EXPECT_TRUE(base::parse_tree("[[[1]]]", "text", {.depth = 3}));
  EXPECT_FALSE(base::parse_tree("[1,2,3]", "text", {.values = 3}));
  EXPECT_FALSE(base::parse_tree("[1,2,3]", "text", {.bytes = 6}));
}

TEST(JsonTree, CopiesKeptPartAsItIs) {
  const std::string text = R"({"a": {"kept": [ 1,  "\u0061" ]}, "b": 2})";
  const auto tree = must(base::parse_tree(text, "text"));
  const base::JsonNode* kept = tree.tree.root().find("a")->find("kept");
  Json document = base::to_document(tree.tree.root(), kept);
  document["b"] = 3;
  EXPECT_EQ(base::to_text(document), R"({"a":{"kept":[ 1,  "\u0061" ]},"b":3})");
}

}  // namespace
