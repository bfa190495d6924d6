// Result<T>: a value, or an Error with a message and an errno. The interface follows std::expected, which Debian 12's
// C++20 library lacks, so that std::expected can replace it.
//
// The project returns errors and does not throw them: much of it runs between fork, setns and exec, where unwinding has
// no caller to reach. Exceptions of libraries (nlohmann/json, bad_alloc) are caught at the call.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/base.hpp"

namespace base {

// The reason of a failure. The reasons are few, because each is a time series of the metrics. Programs of images leave
// it unspecified.
enum class FailureReason : std::uint8_t {
  kUnspecified,
  kState,    // the container's state, bundle or process, as the engine passes it
  kConfig,   // the administrator's configuration
  kRefused,  // the request is wrong, or not allowed
  kNoHca,    // an HCA that does not exist, or a node without HCAs
  kBusy,     // another container holds the HCA, or the limit of the HCA is reached
  kLedger,
  kNetwork,      // rails, and their addresses, routes and RDMA devices
  kUnreachable,  // a gateway that does not answer, or an address that another host has
  kDevices,      // device nodes and rules, limits, and the view
  kTimeout,      // a lock, a plugin or a device was not ready in time
  kInternal,
};

// message: verb, quoted object, cause; wrap() adds context in front. code: the errno behind it, 0 if there is none.
// hint: the remedy, empty if none is known. reason: kUnspecified if it is not known.
struct Error {
  std::string message;
  int code = 0;
  std::string hint = {};
  FailureReason reason{};
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  // Result<bool> has no conversion to bool: callers would take it for the value, not for the success.
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

// Returns an error without an errno.
template <typename... Args>
Error make_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), 0};
}

// Returns the error of a system call: "<sentence>: <text of code>".
template <typename... Args>
Error sys_error(int code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format("{}: {}", fmt::format(format, std::forward<Args>(args)...), std::strerror(code)), code};
}

// Adds context in front of the message: the action of the caller.
inline Error wrap(Error error, std::string_view context) {
  error.message = fmt::format("{}: {}", context, error.message);
  return error;
}

// Returns the error for an exception: bad_alloc, because the programs throw none. what() is the text of a library.
Error error_of_exception();

// Sets `first` to the error of `next`, unless `first` has an error already. For work that continues after an error.
inline void keep_first(Result<void>& first, Result<void> next) {
  if (first && !next) first = std::move(next);
}

// Returns the remedy to print with an error, empty if none is known. If the message has the text of EMFILE or ENFILE,
// the cause is a limit of open files; the remedy is then to raise that limit, whatever the hint. otherwise: the remedy
// if none is known; a parameter, so that callers need no `x.empty() ? otherwise : x` in a braced initializer: GCC 12
// destroys the result of that expression twice.
std::string remedy_of(const Error& error, const char* otherwise = "");
// Returns the message with the remedy of remedy_of() behind it, as logs print an error: "cannot X; remedy: do Y".
std::string with_remedy(const Error& error, const char* otherwise = "");

// The result of reading a kernel attribute: its value, or the errno of the kernel. The errno carries information:
// gid_attrs/types/N returns EINVAL for an empty slot, carrier returns EINVAL while a netdev is down.
struct Unreadable {
  int code = 0;  // errno
  friend bool operator==(const Unreadable&, const Unreadable&) = default;
};

template <typename T>
using Attr = std::variant<T, Unreadable>;

// Returns the value, or fallback if the attribute was unreadable.
template <typename T>
T value_or(const Attr<T>& attr, T fallback) {
  const T* value = std::get_if<T>(&attr);
  return value ? *value : fallback;
}

// Returns the errno of an unreadable attribute, otherwise 0.
template <typename T>
int error_of(const Attr<T>& attr) {
  const auto* failed = std::get_if<Unreadable>(&attr);
  return failed ? failed->code : 0;
}

}  // namespace base

// Evaluates to the value of a Result, or returns its error from the calling function. In a braced initializer, no
// object that owns memory or a descriptor may precede TRY: GCC and clang do not destroy it if TRY returns.
#define TRY(expression)                                                  \
  __extension__({                                                        \
    auto try_result_ = (expression);                                     \
    if (!try_result_.has_value()) return std::move(try_result_).error(); \
    std::move(try_result_).value();                                      \
  })

// Returns the error of a Result<void> from the calling function, or continues.
#define TRY_VOID(expression)                                                                              \
  do {                                                                                                    \
    if (auto try_result_ = (expression); !try_result_.has_value()) return std::move(try_result_).error(); \
  } while (false)
