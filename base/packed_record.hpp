// Passes values to another process of the same program: pack() appends their bytes, unpack() reads them in the same
// order. A value is a number, a text, a pair, a std::optional, a container, or a struct with a describe() as in
// base/json/record.hpp. The bytes have no names, so both processes must come from the same file. They cost a small part
// of a JSON record, which would delay each start of a container.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace base {

template <typename T>
void pack(std::string& out, const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  } else if constexpr (requires { value.has_value(); }) {
    pack(out, value.has_value());
    if (value) pack(out, *value);
  } else if constexpr (requires { value.first; }) {
    pack(out, value.first);
    pack(out, value.second);
  } else if constexpr (requires { value.size(); }) {
    pack(out, static_cast<std::uint32_t>(value.size()));
    if constexpr (std::same_as<T, std::string>) {
      out += value;
    } else {
      for (const auto& element : value)
        pack(out, element);
    }
  } else {
    auto members = [&](const char* /*name*/, const auto& member) { pack(out, member); };
    describe(members, const_cast<T&>(value));  // NOLINT(cppcoreguidelines-pro-type-const-cast): changes nothing
  }
}

// Reads a value and removes it from the front of bytes. Returns false if bytes ends within the value.
template <typename T>
bool unpack(std::string_view& bytes, T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    if (bytes.size() < sizeof value) return false;
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return true;
  } else if constexpr (requires { value.has_value(); }) {
    bool has_value = false;
    return unpack(bytes, has_value) && (!has_value || unpack(bytes, value.emplace()));
  } else if constexpr (requires { value.first; }) {
    return unpack(bytes, value.first) && unpack(bytes, value.second);
  } else if constexpr (requires { value.size(); }) {
    std::uint32_t size = 0;
    // Each element takes one byte or more.
    if (!unpack(bytes, size) || size > bytes.size()) return false;
    if constexpr (std::same_as<T, std::string>) {
      value = bytes.substr(0, size);
      bytes.remove_prefix(size);
    } else {
      for (; size > 0; --size) {
        // The elements of a map have constant keys, so they are read as pairs.
        auto element = [] {
          if constexpr (requires { typename T::mapped_type; }) {
            return std::pair<typename T::key_type, typename T::mapped_type>();
          } else {
            return typename T::value_type();
          }
        }();
        if (!unpack(bytes, element)) return false;
        value.insert(value.end(), std::move(element));
      }
    }
    return true;
  } else {
    bool is_read = true;
    auto members = [&](const char* /*name*/, auto& member) { is_read = is_read && unpack(bytes, member); };
    describe(members, value);
    return is_read;
  }
}

}  // namespace base
