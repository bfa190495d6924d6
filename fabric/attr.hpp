// What reading an attribute of the kernel gave: its value, or the errno that the kernel answered with, because an
// unreadable attribute says something (gid_attrs/types/N answers EINVAL for an empty slot, carrier answers EINVAL while
// a netdev is down).
#pragma once

#include <variant>

namespace fabric {

struct Unreadable {
  int code = 0;  // errno
  friend bool operator==(const Unreadable&, const Unreadable&) = default;
};

template <typename T>
using Attr = std::variant<T, Unreadable>;

// The value, or fallback if the attribute could not be read.
template <typename T>
T value_or(const Attr<T>& attr, T fallback) {
  const T* value = std::get_if<T>(&attr);
  return value ? *value : fallback;
}

}  // namespace fabric
