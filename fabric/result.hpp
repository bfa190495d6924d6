// Result<T>: a value, or an Error that carries a sentence and an errno. It is named after std::expected, which Debian
// 12's C++20 library lacks, so that it can become it later.
//
// The project returns errors instead of throwing them: much of it runs between fork, setns and exec, where unwinding
// has no place to go. What throws (nlohmann/json, bad_alloc) is caught where it is called.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace fabric {

// What an error is about, for a program that counts its errors by it: hook/base/failure.hpp has rdma-hook's words.
enum class Reason : std::uint8_t;

// message: verb, quoted object, cause; context is added in front by wrap(). hint: the remedy, where one is known.
// code: the errno behind it, 0 if there is none. reason: Reason{} when it is not known.
struct Error {
  std::string message;
  int code = 0;
  std::string hint = {};
  Reason reason{};
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  // Not of a Result<bool>, which would be taken for its value.
  explicit operator bool() const requires(!std::is_same_v<T, bool>) { return has_value(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

template <typename... Args>
Error make_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), 0};
}

// The error of a system call: "<sentence>: <text of code>".
template <typename... Args>
Error sys_error(int code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format("{}: {}", fmt::format(format, std::forward<Args>(args)...), std::strerror(code)), code};
}

// Adds what the caller was doing in front of what went wrong.
inline Error wrap(Error error, std::string_view context) {
  error.message = fmt::format("{}: {}", context, error.message);
  return error;
}

// For work that goes on after an error: the first one stays.
inline void keep_first(Result<void>& first, Result<void> next) {
  if (first && !next) first = std::move(next);
}

// The remedy to print with an error; empty: none is known. If the message has the text of EMFILE or ENFILE, a limit
// of open files is the cause whatever the error's own hint suggests, so that its remedy replaces the hint.
// otherwise: the remedy if none is known. Callers pass it rather than write `own.empty() ? otherwise : own` in a braced
// initializer, whose result GCC 12 destroys twice.
std::string remedy_of(const Error& error, const char* otherwise = "");

// What reading an attribute of the kernel gave: its value, or the errno that the kernel answered with, because an
// unreadable attribute says something (gid_attrs/types/N answers EINVAL for an empty slot, carrier answers EINVAL while
// a netdev is down).
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

// The errno of one that could not be read; else 0.
template <typename T>
int error_of(const Attr<T>& attr) {
  const auto* failed = std::get_if<Unreadable>(&attr);
  return failed ? failed->code : 0;
}

}  // namespace fabric

// Evaluates to the value of a Result, or returns its error from the calling function. In a braced initializer nothing
// that owns memory or a descriptor may stand before it: GCC and clang run no destructor of that when TRY returns.
#define TRY(expression)                                                  \
  __extension__({                                                        \
    auto try_result_ = (expression);                                     \
    if (!try_result_.has_value()) return std::move(try_result_).error(); \
    std::move(try_result_).value();                                      \
  })

// The same for a Result<void>.
#define TRY_VOID(expression)                                                                              \
  do {                                                                                                    \
    if (auto try_result_ = (expression); !try_result_.has_value()) return std::move(try_result_).error(); \
  } while (false)
