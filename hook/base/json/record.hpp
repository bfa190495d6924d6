// Writes and reads JSON records of this program. The members of a struct are described once, for both:
//
//   template <typename Members>
//   void describe(Members& members, ProcessIdentity& process) {
//     members("pid", process.pid);
//     members.optional("start_time", process.start_time);
//   }
//
// Reading is strict: each member that is not optional must be present, each must have its type and range, and no other
// may be present. A member is a bool, a text, a number, a described struct, a std::optional or a vector of one of
// these.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hook/base/file_name.hpp"
#include "hook/base/json/json.hpp"
#include "hook/base/result.hpp"
#include "hook/base/words.hpp"

namespace hook {

template <typename T>
Json to_record(const T& value);

class RecordWriter {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    add_member(json_, name) = to_record(value);
  }
  // Writes the member, unless the value is the default value of its type.
  template <typename T>
  void optional(const char* name, const T& value) {
    if (!(value == T())) (*this)(name, value);
  }
  void name(const char* name, const std::string& value, std::size_t) { (*this)(name, value); }
  void optional_name(const char* name, const std::string& value, std::size_t) { optional(name, value); }
  template <typename T, typename ToText, typename Parse>
  void text(const char* name, const T& value, ToText to_text, Parse) {
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
  template <typename Describe>
  void group(const char* name, Describe describe_members) {
    RecordWriter inner;
    describe_members(inner);
    add_member(json_, name) = inner.take();
  }
  template <typename Describe>
  void optional_group(const char* name, bool is_there, Describe describe_members) {
    if (is_there) group(name, describe_members);
  }
  template <typename ToText>
  void note(const char* name, ToText for_people) {
    add_member(json_, name) = std::string(for_people());
  }
  void require(bool, const char*) {}
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

class RecordReader {
 public:
  explicit RecordReader(const Json& object) : object_(object) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    const Json* const found = known(name);
    if (!found) return fail(name);
    read(name, *found, value);
  }
  template <typename T>
  void optional(const char* name, T& value) {
    if (const Json* const found = known(name)) read(name, *found, value);
  }
  // Reads a member that must be a file name (is_file_name()).
  void name(const char* name, std::string& value, std::size_t longest) {
    (*this)(name, value);
    require(is_file_name(value, longest), name);
  }
  void optional_name(const char* name, std::string& value, std::size_t longest) {
    if (known(name)) this->name(name, value, longest);
  }
  // Reads a text and parses it. parse(text) returns a std::optional of the value.
  template <typename T, typename ToText, typename Parse>
  void text(const char* name, T& value, ToText, Parse parse) {
    std::string written;
    (*this)(name, written);
    if (error_) return;
    auto parsed = parse(written);
    if (!parsed) return fail(name);
    value = *std::move(parsed);
  }
  template <typename T, typename ToText, typename Parse>
  void optional_text(const char* name, T& value, ToText to_text, Parse parse) {
    if (known(name)) text(name, value, to_text, parse);
  }
  template <typename T, std::size_t size>
  void word(const char* name, T& value, const Word<T> (&words)[size]) {
    text(name, value, words, [&](std::string_view written) { return from_word(words, written); });
  }
  template <typename Describe>
  void group(const char* name, Describe describe_members) {
    const Json* const found = known(name);
    if (!found || !found->is_object()) return fail(name);
    RecordReader inner(*found);
    describe_members(inner);
    keep(inner.finish());
  }
  template <typename Describe>
  void optional_group(const char* name, bool, Describe describe_members) {
    if (known(name)) group(name, describe_members);
  }
  // Accepts any value of this member and ignores it: it is written for people only.
  template <typename ToText>
  void note(const char* name, ToText) {
    known(name);
  }
  void require(bool holds, const char* name) {
    if (!holds) fail(name);
  }
  // Returns the first error: a member that is missing, wrong or unknown.
  Result<void> finish() {
    if (error_) return *error_;
    for (const auto& [name, value] : object_.items()) {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) return unknown_member(name);
    }
    return {};
  }

 private:
  const Json* known(const char* name) {
    names_.emplace_back(name);
    return member(object_, name);
  }
  void fail(const char* name) {
    if (!error_) error_ = wrong_member(name);
  }
  void keep(const Result<void>& done) {
    if (!done && !error_) error_ = done.error();
  }
  void read(const char* name, const Json& json, bool& value) {
    if (!json.is_boolean()) return fail(name);
    value = json.get<bool>();
  }
  void read(const char* name, const Json& json, std::string& value) {
    if (!json.is_string()) return fail(name);
    value = json.get_ref<const std::string&>();
  }
  template <std::integral Number>
  void read(const char* name, const Json& json, Number& value) {
    const auto* const number = json.get_ptr<const Json::number_unsigned_t*>();
    if (!number || *number > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) return fail(name);
    value = static_cast<Number>(*number);
  }
  template <typename T>
  void read(const char* name, const Json& json, std::optional<T>& value) {
    read(name, json, value.emplace());
  }
  template <typename T>
  void read(const char* name, const Json& json, std::vector<T>& value) {
    if (!json.is_array()) return fail(name);
    for (const Json& element : json)
      read(name, element, value.emplace_back());
  }
  template <typename T>
  requires std::is_class_v<T>
  void read(const char* name, const Json& json, T& value) {
    if (!json.is_object()) return fail(name);
    RecordReader inner(json);
    describe(inner, value);
    keep(inner.finish());
  }

  const Json& object_;
  std::vector<std::string_view> names_;  // members that describe() has named
  std::optional<Error> error_;
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

// Reads a struct from a record. Errors: as RecordReader::finish().
template <typename T>
Result<T> from_record(const Json& json) {
  T value;
  RecordReader reader(json);
  describe(reader, value);
  TRY_VOID(reader.finish());
  return value;
}

}  // namespace hook
