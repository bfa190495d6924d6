#include "base/columns.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace base {
namespace {

bool begins_column(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

// Returns the length in bytes of the first `most` columns of a text.
std::size_t bytes_within(std::string_view text, std::size_t most) {
  std::size_t bytes = 0;
  for (std::size_t column = 0; bytes < text.size(); ++bytes)
    if (begins_column(text[bytes]) && column++ == most) break;
  return bytes;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_column));
}

std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "...";
  if (columns_of(text) <= most) return std::string(text);
  return std::string(text.substr(0, bytes_within(text, most - kCut.size()))) + std::string(kCut);
}

void add_wrapped(std::string_view text, std::size_t first, std::size_t indent, std::string& out) {
  std::size_t column = first;
  bool begins = true;
  const auto next_line = [&] {
    out += "\n" + std::string(indent, ' ');
    column = indent;
    begins = true;
  };
  for (std::string_view word : split(text, ' ')) {
    if (!begins && column + 1 + columns_of(word) > kColumns) next_line();
    if (!std::exchange(begins, false)) {
      out += ' ';
      ++column;
    }
    for (std::size_t bytes = bytes_within(word, kColumns - column); bytes < word.size();
         bytes = bytes_within(word, kColumns - column)) {
      out += word.substr(0, bytes);
      word.remove_prefix(bytes);
      next_line();
      begins = false;
    }
    out += word;
    column += columns_of(word);
  }
  out += '\n';
}

}  // namespace base
