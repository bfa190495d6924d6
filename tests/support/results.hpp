// Functions for expectations about a Result: a failed expectation shows the message.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace test_support {

// Return the message, errno and hint of an error, or "" and 0 for a value.
template <typename T>
std::string error_message(const base::Result<T>& result) {
  return result.has_value() ? "" : result.error().message;
}
template <typename T>
int error_code(const base::Result<T>& result) {
  return result.has_value() ? 0 : result.error().code;
}
template <typename T>
std::string error_hint(const base::Result<T>& result) {
  return result.has_value() ? "" : result.error().hint;
}

// Returns the value. Without a value it throws an exception, which ends the test like an ASSERT, and which gtest
// reports.
template <typename T>
T must(base::Result<T> result) {
  if (!result.has_value()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}
inline void must(const base::Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}
template <typename T>
T must(std::optional<T> found) {
  if (!found) throw std::runtime_error("there is no value");
  return *std::move(found);
}

template <typename T>
testing::AssertionResult is_ok(const base::Result<T>& result) {
  return result.has_value() ? testing::AssertionSuccess() : testing::AssertionFailure() << result.error().message;
}

inline testing::AssertionResult has_text(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "`" << part << "` is not in `" << text << "`";
}

}  // namespace test_support

#define EXPECT_OK(expression) EXPECT_TRUE(test_support::is_ok(expression))
#define ASSERT_OK(expression) ASSERT_TRUE(test_support::is_ok(expression))
