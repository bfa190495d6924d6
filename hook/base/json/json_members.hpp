// Members of a document that this program wrote itself: each is there and of its type, or the document is damaged.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"

namespace hook {

// nullptr: no object, or no such member.
const Json* member(const Json& object, const char* name);
// "`NAME` is missing or wrong".
fabric::Error wrong_member(const char* name);
fabric::Result<std::string> text_at(const Json& object, const char* name);
fabric::Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most);
fabric::Result<bool> truth_at(const Json& object, const char* name);

// An unsigned number that may be missing.
template <typename Number>
fabric::Result<void> optional_number(const Json& object, const char* name, std::optional<Number>& number) {
  if (!member(object, name)) return {};
  number = static_cast<Number>(TRY(number_at(object, name, std::numeric_limits<Number>::max())));
  return {};
}

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

template <typename Value>
void put_optional(Json& object, const char* name, const std::optional<Value>& value) {
  if (value) object[name] = *value;
}

}  // namespace hook
