// Tables that assign a word to each value of an enumeration, for files, options and messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/base.hpp"

namespace base {

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

// Returns the first word in the table for this value, empty if there is none.
template <typename Value, std::size_t size>
constexpr std::string_view to_word(const Word<Value> (&words)[size], Value value) {
  for (const Word<Value>& one : words)
    if (one.value == value) return one.word;
  return {};
}

// Returns the value for this word, nullopt if the table does not have it.
template <typename Value, std::size_t size>
constexpr std::optional<Value> from_word(const Word<Value> (&words)[size], std::string_view word) {
  for (const Word<Value>& one : words)
    if (one.word == word) return one.value;
  return std::nullopt;
}

// Returns the words in the order of the table.
template <typename Value, std::size_t size>
std::vector<std::string_view> words_of(const Word<Value> (&words)[size]) {
  std::vector<std::string_view> all;
  for (const Word<Value>& one : words)
    all.push_back(one.word);
  return all;
}

}  // namespace base
