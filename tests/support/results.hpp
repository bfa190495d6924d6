// What tests ask of a Result most often.
#pragma once

#include <stdexcept>
#include <utility>

#include "fabric/result.hpp"

namespace test_support {

// The value. Without one it throws the error's message, which fails the test.
template <typename T>
T must(fabric::Result<T> result) {
  if (!result.has_value()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

inline void must(const fabric::Result<void>& result) {
  if (!result.has_value()) throw std::runtime_error(result.error().message);
}

}  // namespace test_support
