// A JSON text as a tree whose texts are parts of the text itself. For a caller that reads some members of a large text
// and changes none: it takes a fifth of the time of a document (Json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"

namespace base {

// A value of the text. A value and the values below it follow each other in memory, so that a pointer to a value is
// enough to reach them.
struct JsonNode {
  enum class Kind : std::uint8_t { kNull, kBoolean, kUnsigned, kSigned, kFloat, kString, kArray, kObject };

  // The values of an array, or of the members of an object, in the order of the text.
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = JsonNode;
    using difference_type = std::ptrdiff_t;
    using pointer = const JsonNode*;
    using reference = const JsonNode&;
    Iterator() = default;
    explicit Iterator(const JsonNode* at) : at_(at) {}
    const JsonNode& operator*() const { return *at_; }
    const JsonNode* operator->() const { return at_; }
    Iterator& operator++() {
      at_ += at_->span;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const JsonNode* at_ = nullptr;
  };
  Iterator begin() const { return Iterator(this + 1); }
  Iterator end() const { return Iterator(this + span); }

  bool is_null() const { return kind == Kind::kNull; }
  bool is_boolean() const { return kind == Kind::kBoolean; }
  bool is_integer() const { return kind == Kind::kUnsigned || kind == Kind::kSigned; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // Returns a member of an object; nullptr: there is none, or this is no object.
  const JsonNode* find(std::string_view name) const;

  Kind kind = Kind::kNull;
  std::uint32_t span = 1;      // number of values: this one and all below it
  std::string_view key = {};   // name of a member
  std::string_view text = {};  // kString: the text; kArray, kObject: the part of the JSON text, with its brackets
  // kBoolean: 0 or 1. kUnsigned: the number. kSigned: a negative number, as std::int64_t. kFloat: the bits of a double.
  std::uint64_t number = 0;
};

class JsonTree {
 public:
  JsonTree() : nodes_(1) {}  // the value null
  // No copies, because the nodes of a copy would point to the texts of the original.
  JsonTree(JsonTree&&) = default;
  JsonTree& operator=(JsonTree&&) = default;
  ~JsonTree() = default;
  const JsonNode& root() const { return nodes_.front(); }

 private:
  friend std::optional<JsonTree> try_parse_tree(std::string_view text, const JsonLimits& limits);
  friend class TreeBuilder;
  std::vector<JsonNode> nodes_;
  std::deque<std::string> decoded_;  // the texts that have an escape in the JSON text; their addresses do not change
};

// Parses a text, which must outlive the tree. Returns nullopt if parse_json() must decide: the text may be valid.
std::optional<JsonTree> try_parse_tree(std::string_view text, const JsonLimits& limits = {});

// A tree with the text that it points to, if this is not the caller's.
struct OwnedTree {
  std::deque<std::string> text;
  JsonTree tree;
};

// Parses a text, which must outlive the tree. Errors: those of parse_json(), for the same texts.
Result<OwnedTree> parse_tree(std::string_view text, std::string_view what, const JsonLimits& limits = {});
// Returns the tree of a document.
OwnedTree tree_of(const Json& document);

// Returns the document of a value. kept: an array or object below it of which the document has the text only, as a
// value of type binary, which no other document has: to_text() copies it. nullptr: none.
Json to_document(const JsonNode& node, const JsonNode* kept = nullptr);

}  // namespace base
