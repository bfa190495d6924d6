// Writes and reads JSON records of this program. The members of a struct are described once, for both:
//
//   void describe(auto& members, ProcessIdentity& process) {
//     members("pid", process.pid);
//     members.optional("start_time", process.start_time);
//   }
//
// Reading is strict: each member that is not optional must be present, each must have its type and range, and no other
// may be present. A member is a bool, a text, a number, a described struct, a std::optional or a vector of one of
// these.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/file_name.hpp"
#include "base/json/json.hpp"
#include "base/result.hpp"
#include "base/words.hpp"

namespace base {

template <typename T>
Json to_record(const T& value);

class RecordWriter {
 public:
  void operator()(const char* name, const auto& value) { add_member(json_, name) = to_record(value); }
  // Writes the member, unless the value is the default value of its type.
  template <typename T>
  void optional(const char* name, const T& value) {
    if (!(value == T())) (*this)(name, value);
  }
  void name(const char* name, const std::string& value, std::size_t) { (*this)(name, value); }
  void optional_name(const char* name, const std::string& value, std::size_t) { optional(name, value); }
  void text(const char* name, const auto& value, auto to_text, auto) {
    add_member(json_, name) = std::string(to_text(value));
  }
  template <typename T, typename ToText, typename Parse>
  void optional_text(const char* name, const T& value, ToText to_text, Parse parse) {
    if (!(value == T())) text(name, value, to_text, parse);
  }
  template <typename T, std::size_t size>
  void word(const char* name, T value, const Word<T> (&words)[size]) {
    add_member(json_, name) = std::string(to_word(words, value));
  }
  void group(const char* name, auto describe_members) {
    RecordWriter inner;
    describe_members(inner);
    add_member(json_, name) = inner.take();
  }
  void optional_group(const char* name, bool is_there, auto describe_members) {
    if (is_there) group(name, describe_members);
  }
  void note(const char* name, auto for_people) { add_member(json_, name) = std::string(for_people()); }
  void require(bool, const char*) {}
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

// The functions by which describe() reads. Input::find() goes on to the value of a member and returns true if the
// member is there. Input::read() and Input::read_object() read this value. Input::fail() notes that a member is missing
// or wrong.
template <typename Input>
class RecordInput {
 public:
  void operator()(const char* name, auto& value) {
    if (!input().find(name)) return input().fail(name);
    input().read(value);
  }
  template <typename T>
  void optional(const char* name, T& value) {
    if (input().find(name)) input().read(value);
  }
  // Reads a member that must be a file name (is_file_name()).
  void name(const char* name, std::string& value, std::size_t longest) {
    (*this)(name, value);
    require(is_file_name(value, longest), name);
  }
  void optional_name(const char* name, std::string& value, std::size_t longest) {
    if (!input().find(name)) return;
    input().read(value);
    require(is_file_name(value, longest), name);
  }
  // Reads a text and parses it. parse(text) returns a std::optional of the value.
  void text(const char* name, auto& value, auto to_text, auto parse) {
    if (!input().find(name)) return input().fail(name);
    parse_found(name, value, to_text, parse);
  }
  void optional_text(const char* name, auto& value, auto to_text, auto parse) {
    if (input().find(name)) parse_found(name, value, to_text, parse);
  }
  template <typename T, std::size_t size>
  void word(const char* name, T& value, const Word<T> (&words)[size]) {
    text(name, value, words, [&](std::string_view written) { return from_word(words, written); });
  }
  void group(const char* name, auto describe_members) {
    if (!input().find(name)) return input().fail(name);
    input().read_object(describe_members);
  }
  void optional_group(const char* name, bool, auto describe_members) {
    if (input().find(name)) input().read_object(describe_members);
  }
  void require(bool holds, const char* name) {
    if (!holds) input().fail(name);
  }

 private:
  Input& input() { return static_cast<Input&>(*this); }
  void parse_found(const char* name, auto& value, auto, auto parse) {
    std::string written;
    input().read(written);
    auto parsed = parse(written);
    if (!parsed) return input().fail(name);
    value = *std::move(parsed);
  }
};

class RecordReader : public RecordInput<RecordReader> {
 public:
  explicit RecordReader(const Json& object) : object_(object) {}

  // Accepts any value of this member and ignores it: it is written for people only.
  void note(const char* name, auto) { find(name); }
  // Returns the first error: a member that is missing, wrong or unknown.
  Result<void> finish() {
    if (error_) return *error_;
    for (const auto& [name, value] : object_.items())
      if (std::ranges::find(names_, name) == names_.end()) return unknown_member(name);
    return {};
  }

 private:
  friend RecordInput<RecordReader>;

  bool find(const char* name) {
    names_.emplace_back(name);
    name_ = name;
    found_ = member(object_, name);
    return found_ != nullptr;
  }
  void fail(const char* name) {
    if (!error_) error_ = wrong_member(name);
  }
  void read(bool& value) {
    if (!found_->is_boolean()) return fail(name_);
    value = found_->get<bool>();
  }
  void read(std::string& value) {
    if (!found_->is_string()) return fail(name_);
    value = found_->get_ref<const std::string&>();
  }
  template <std::integral Number>
  void read(Number& value) {
    const auto* const number = found_->get_ptr<const Json::number_unsigned_t*>();
    if (!number || *number > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) return fail(name_);
    value = static_cast<Number>(*number);
  }
  template <typename T>
  void read(std::optional<T>& value) {
    read(value.emplace());
  }
  template <typename T>
  void read(std::vector<T>& value) {
    if (!found_->is_array()) return fail(name_);
    for (const Json& element : *found_) {
      found_ = &element;
      read(value.emplace_back());
    }
  }
  template <typename T>
  requires std::is_class_v<T>
  void read(T& value) {
    read_object([&](RecordReader& inner) { describe(inner, value); });
  }
  void read_object(auto describe_members) {
    if (!found_->is_object()) return fail(name_);
    RecordReader inner(*found_);
    describe_members(inner);
    const auto done = inner.finish();
    if (!done && !error_) error_ = done.error();
  }

  const Json& object_;
  std::vector<std::string_view> names_;  // members that describe() has named
  const char* name_ = nullptr;           // the name that was read last
  const Json* found_ = nullptr;          // value of the member `name_`, or an element of this value
  std::optional<Error> error_;
};

// Reads a struct from a text as RecordWriter and dump(-1) write it: without spaces, with the members in the order of
// describe(), and with texts that need no escape. This costs much less than a document. Fails on every other
// text, also if it is a valid record: RecordReader then reads it, or names the fault. Never accepts a text that
// RecordReader refuses.
class RecordScanner : public RecordInput<RecordScanner> {
 public:
  explicit RecordScanner(std::string_view text) : rest_(text) {}

  // Returns true if the whole text was read.
  bool finish() const { return !failed_ && rest_.empty(); }

  template <typename T>
  requires std::is_class_v<T>
  void read(T& value) {
    read_object([&](RecordScanner& inner) { describe(inner, value); });
  }

 private:
  friend RecordInput<RecordScanner>;

  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void fail(const char*) { failed_ = true; }
  void take(std::string_view text) { failed_ = failed_ || !skip(text); }
  void read_object(auto describe_members) {
    take("{");
    is_first_ = true;
    describe_members(*this);
    take("}");
    is_first_ = false;
  }
  // Returns true if the next member has this name, and goes on to its value.
  bool find(std::string_view name) {
    std::string_view text = rest_;
    const auto matches = [&](std::string_view part) {
      const bool found = text.starts_with(part);
      if (found) text.remove_prefix(part.size());
      return found;
    };
    if (failed_ || !matches(is_first_ ? "\"" : ",\"") || !matches(name) || !matches("\":")) return false;
    rest_ = text;
    is_first_ = false;
    return true;
  }
  void read(bool& value) {
    value = skip("true");
    if (!value) take("false");
  }
  void read(std::string& value) {
    take("\"");
    // A control character is no JSON. Texts with an escape, or with bytes outside ASCII, which may be invalid, are left
    // to RecordReader.
    const auto ends = [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte < 0x20 || byte >= 0x80 || c == '"' || c == '\\';
    };
    const auto* const end = std::ranges::find_if(rest_, ends);
    value.assign(rest_.begin(), end);
    rest_.remove_prefix(value.size());
    take("\"");
  }
  void read(std::integral auto& value) {
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    // from_chars() accepts a sign and leading zeros.
    failed_ =
        failed_ || code != std::errc() || rest_.front() == '-' || (rest_.front() == '0' && end - rest_.data() > 1);
    if (!failed_) rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
  }
  template <typename T>
  void read(std::optional<T>& value) {
    read(value.emplace());
  }
  template <typename T>
  void read(std::vector<T>& value) {
    take("[");
    if (skip("]")) return;
    do {
      read(value.emplace_back());
    } while (!failed_ && skip(","));
    take("]");
  }

  std::string_view rest_;
  bool is_first_ = true;  // the next member is the first of its object
  bool failed_ = false;
};

template <typename T>
Json to_record(const T& value) {
  if constexpr (std::integral<T>) {
    if constexpr (std::same_as<T, bool>)
      return value;
    else
      return static_cast<std::uint64_t>(value);  // no member is negative
  } else if constexpr (std::same_as<T, std::string>) {
    return value;
  } else if constexpr (requires { value.has_value(); }) {
    return to_record(*value);
  } else if constexpr (requires { typename T::value_type; }) {
    Json list = Json::array();
    for (const auto& element : value)
      list.push_back(to_record(element));
    return list;
  } else {
    RecordWriter writer;
    describe(writer, const_cast<T&>(value));  // NOLINT(cppcoreguidelines-pro-type-const-cast): a writer changes nothing
    return writer.take();
  }
}

// Reads a struct from a record. Errors: a member is missing, wrong or unknown.
template <typename T>
Result<T> from_record(const Json& json) {
  T value;
  RecordReader reader(json);
  describe(reader, value);
  TRY_VOID(reader.finish());
  return value;
}

// Reads a struct with RecordScanner. nullopt: the text must be parsed, because the scanner does not read it.
template <typename T>
std::optional<T> scan_record(std::string_view text) {
  T value;
  RecordScanner scanner(text);
  scanner.read(value);
  return scanner.finish() ? std::optional(std::move(value)) : std::nullopt;
}

}  // namespace base
