#include "base/json/tree.hpp"

#include <bit>
#include <cerrno>
#include <exception>
#include <set>
#include <utility>

#include "base/json/json.hpp"
#include "base/json/quick_reader.hpp"

namespace base {

// The handler of QuickReader. Each function returns false if the text must be left to parse_json().
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const JsonLimits& limits, JsonTree& tree)
      : text_(text), limits_(limits), tree_(tree) {
    constexpr std::size_t kUsual = 24;  // bytes of the text for each value, of a container's config.json
    nodes().clear();
    nodes().reserve(text.size() / kUsual + 1);
  }

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = Kind::kBoolean, .number = value ? 1U : 0U}); }
  bool number_unsigned(std::uint64_t value) { return add({.kind = Kind::kUnsigned, .number = value}); }
  bool number_integer(std::int64_t value) {
    return add({.kind = Kind::kSigned, .number = static_cast<std::uint64_t>(value)});
  }
  bool number_float(double value, const std::string&) {
    return add({.kind = Kind::kFloat, .number = std::bit_cast<std::uint64_t>(value)});
  }
  bool string(std::string_view text) { return add({.kind = Kind::kString, .text = text}); }
  bool string(std::string& text) { return string(std::string_view(tree_.decoded_.emplace_back(std::move(text)))); }
  bool start_object(std::size_t at) { return open(Kind::kObject, at); }
  bool start_array(std::size_t at) { return open(Kind::kArray, at); }
  void ends_at(std::size_t at) { end_ = at; }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) { return key(std::string_view(tree_.decoded_.emplace_back(std::move(name)))); }
  // Refuses duplicate keys: one reader of a text could use the first value, and another the last.
  bool key(std::string_view name) {
    constexpr std::size_t kManyMembers = 32;  // the search is linear, so a larger object gets a set of its names
    Level& level = open_.back();
    key_ = name;
    if (level.names.empty() && level.members++ < kManyMembers) return !has_member(level, name);
    if (level.names.empty())
      each_member(level, [&](const JsonNode& member) { return level.names.insert(member.key).second; });
    return level.names.insert(name).second;
  }

 private:
  using Kind = JsonNode::Kind;

  // An object or array whose end was not read yet.
  struct Level {
    std::size_t at;  // its index in nodes()
    std::size_t members = 0;
    std::set<std::string_view> names = {};  // names of an object with many members
  };

  std::vector<JsonNode>& nodes() { return tree_.nodes_; }

  // Calls use() for each member that was read, until it returns false.
  void each_member(const Level& level, auto use) {
    const JsonNode* const end = nodes().data() + nodes().size();
    for (const JsonNode* member = nodes().data() + level.at + 1; member != end && use(*member);
         member += member->span) {
    }
  }
  bool has_member(const Level& level, std::string_view name) {
    bool has = false;
    each_member(level, [&](const JsonNode& member) { return !(has = member.key == name); });
    return has;
  }

  bool add(JsonNode node) {
    if (nodes().size() >= limits_.values) return false;
    node.key = std::exchange(key_, {});
    nodes().push_back(node);
    return true;
  }
  bool open(Kind kind, std::size_t begin) {
    if (open_.size() >= limits_.depth) return false;
    open_.push_back({nodes().size()});
    return add({.kind = kind, .text = text_.substr(begin)});
  }
  bool close() {
    const std::size_t at = open_.back().at;
    open_.pop_back();
    JsonNode& node = nodes()[at];
    node.span = static_cast<std::uint32_t>(nodes().size() - at);
    node.text = node.text.substr(0, node.text.size() - (text_.size() - end_));
    return true;
  }

  const std::string_view text_;
  const JsonLimits& limits_;
  JsonTree& tree_;
  std::string_view key_;
  std::size_t end_ = 0;  // place in the text after the last bracket
  std::vector<Level> open_;
};

const JsonNode* JsonNode::find(std::string_view name) const {
  if (kind != Kind::kObject) return nullptr;
  for (const JsonNode& member : *this)
    if (member.key == name) return &member;
  return nullptr;
}

std::optional<JsonTree> try_parse_tree(std::string_view text, const JsonLimits& limits) {
  // nlohmann's parser takes a NUL byte as the end of the text, and parse_json() refuses it.
  if (text.size() > limits.bytes || text.find('\0') != std::string_view::npos) return std::nullopt;
  JsonTree tree;
  try {
    TreeBuilder builder(text, limits, tree);
    if (!QuickReader(text, builder).read()) return std::nullopt;
  } catch (const std::exception&) {  // only bad_alloc is expected
    return std::nullopt;
  }
  return tree;
}

Result<OwnedTree> parse_tree(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (auto tree = try_parse_tree(text, limits)) return OwnedTree{{}, *std::move(tree)};
  const Json document = TRY(parse_json(text, what, limits));
  OwnedTree owned = tree_of(document);
  // A caller would take an empty tree for a container that requests nothing.
  if (owned.tree.root().is_null() && !document.is_null()) return sys_error(ENOMEM, "cannot read {}", what);
  return owned;
}

Json to_document(const JsonNode& node, const JsonNode* kept) {
  using Kind = JsonNode::Kind;
  if (&node == kept && (node.is_array() || node.is_object()))
    return Json::binary(Json::binary_t::container_type(node.text.begin(), node.text.end()));
  const auto count = static_cast<std::size_t>(std::distance(node.begin(), node.end()));
  switch (node.kind) {
    case Kind::kNull:
      return {};
    case Kind::kBoolean:
      return node.number != 0;
    case Kind::kUnsigned:
      return node.number;
    case Kind::kSigned:
      return static_cast<std::int64_t>(node.number);
    case Kind::kFloat:
      return std::bit_cast<double>(node.number);
    case Kind::kString:
      return std::string(node.text);
    case Kind::kArray: {
      Json::array_t elements;
      elements.reserve(count);
      for (const JsonNode& element : node)
        elements.push_back(to_document(element, kept));
      return elements;
    }
    case Kind::kObject:
      break;
  }
  // The members are appended to the vector of ordered_map, because operator[] would search all members again.
  Json::object_t members;
  members.reserve(count);
  for (const JsonNode& member : node)
    members.Container::emplace_back(std::string(member.key), to_document(member, kept));
  return members;
}

OwnedTree tree_of(const Json& document) {
  OwnedTree owned;
  owned.text.push_back(to_text(document));
  // The text of a document is valid, and no deeper and longer than its limits allow.
  constexpr std::size_t kAny = SIZE_MAX;
  auto tree = try_parse_tree(owned.text.front(), {.bytes = kAny, .depth = kAny, .values = kAny});
  if (tree) owned.tree = *std::move(tree);
  return owned;
}

}  // namespace base
