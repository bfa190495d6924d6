// One pass over the text: bounds, duplicate keys and the document together.
#include "hook/base/json/json.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "fabric/text.hpp"
#include "hook/base/json/json_walk.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

constexpr std::size_t kLongestCause = 200;
constexpr std::size_t kLongestShownKey = 64;

// What a message quotes of a text that may be hostile and megabytes long.
std::string shown(std::string_view text, std::size_t longest) {
  return fabric::printable(text.substr(0, longest)) + (text.size() > longest ? "..." : "");
}

// Builds the document. Duplicate keys are refused: two readers of one text could disagree about which of them counts.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(Walk& walk, Json& root) : walk_(walk), root_(root) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return walk_.fail("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (object.size() >= kManyMembers ? !long_keys_.back().insert(name).second : object.contains(name)) {
      return walk_.fail(fmt::format("`{}` is there twice", shown(name, kLongestShownKey)));
    }
    if (object.size() + 1 == kManyMembers) {
      for (const auto& [known, value] : object.items())
        long_keys_.back().insert(known);
      long_keys_.back().insert(name);
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 2, column 7: syntax error while ...", or without a place
    // "[json.exception.out_of_range.406] number overflow ...": what comes after both.
    std::string_view text = error.what();
    const auto skip = [&](std::string_view mark, std::string_view end) {
      const std::size_t at = text.starts_with(mark) ? text.find(end) : std::string_view::npos;
      if (at != std::string_view::npos) text.remove_prefix(at + end.size());
    };
    skip("[json.exception", "] ");
    skip("parse error at", ": ");
    return walk_.fail(shown(text, kLongestCause));
  }

 private:
  // Looking through an ordered object is linear: with more members a set does it.
  static constexpr std::size_t kManyMembers = 32;

  template <typename T>
  Json* place(T&& value) {
    if (open_.empty()) {
      root_ = Json(std::forward<T>(value));
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(Json(std::forward<T>(value)));
      return &parent.back();
    }
    // push_back of ordered_map's vector: operator[] would look through all members again.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(std::move(key_), Json(std::forward<T>(value)));
    return &members.back().second;
  }
  template <typename T>
  bool put(T&& value) {
    place(std::forward<T>(value));
    return true;
  }
  bool open(Json empty) {
    if (!walk_.enter()) return false;
    open_.push_back(place(std::move(empty)));
    long_keys_.emplace_back();
    return true;
  }
  bool close() {
    walk_.leave();
    open_.pop_back();
    long_keys_.pop_back();
    return true;
  }

  Walk& walk_;
  Json& root_;
  std::vector<Json*> open_;
  std::vector<std::set<std::string>> long_keys_;
  std::string key_;
};

}  // namespace

std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits, JsonFault& fault) {
  if (text.size() > limits.bytes) {
    fault = {0, fmt::format("longer than {} bytes", limits.bytes)};
    return std::nullopt;
  }
  // nlohmann's lexer takes a NUL byte for the end and would pass over what follows.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fault = {1 + static_cast<unsigned>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n')),
             "a NUL byte"};
    return std::nullopt;
  }
  Position position;
  Walk walk(position, limits.depth);
  Json root;
  Builder builder(walk, root);
  try {
    if (walk_json(text, position, builder) && walk.problem().empty()) return root;
    fault = {walk.problem_line(), walk.problem()};
  } catch (const std::exception& error) {  // bad_alloc
    fault = {position.line(), error.what()};
  }
  return std::nullopt;
}

Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  JsonFault fault;
  auto json = try_parse_json(text, limits, fault);
  if (json) return *std::move(json);
  if (fault.line == 0) return make_error("{}: {}", what, fault.message);
  return make_error("{}, line {}: {}", what, fault.line, fault.message);
}

}  // namespace hook
