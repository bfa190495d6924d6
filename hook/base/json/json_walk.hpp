// What building a document and noting its lines have in common. Internal to json.cpp and json_lines.cpp.
//
// nlohmann's SAX parser knows no positions, but it takes its input from an iterator, and an iterator that counts line
// ends knows the line at each event.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"

namespace hook {

struct Position {
  unsigned next_line = 1;  // of what comes next
  char last = 0;           // what was read last

  // The line of what was read last. The end of a number, and of what is broken, is noticed one character late, which
  // may have been the end of the line.
  unsigned line() const { return last == '\n' ? next_line - 1 : next_line; }
};

// The position is shared by all copies of the iterator, of which the parser makes some.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  char operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->last = *at_++;
    if (position_->last == '\n') ++position_->next_line;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

// What DOM and lines have in common: the way down to the current value, bounded.
class Walk {
 public:
  Walk(const Position& position, int depth) : position_(position), depth_(depth) {}

  const Position& position() const { return position_; }
  const std::string& problem() const { return problem_; }
  unsigned problem_line() const { return problem_line_; }
  bool fail(std::string problem) {
    if (problem_.empty()) {
      problem_ = std::move(problem);
      problem_line_ = position_.line();
    }
    return false;
  }
  bool enter() {
    if (++level_ > depth_) return fail(fmt::format("nested deeper than {} levels", depth_));
    return true;
  }
  void leave() { --level_; }

 private:
  const Position& position_;
  int depth_;
  int level_ = 0;
  std::string problem_;
  unsigned problem_line_ = 0;
};

// Feeds the text to a handler. False: it or the parser refused.
template <typename Handler>
bool walk_json(std::string_view text, Position& position, Handler& handler) {
  const CountingIterator begin(text.data(), &position);
  const CountingIterator end(text.data() + text.size(), &position);
  return Json::sax_parse(begin, end, &handler);
}

}  // namespace hook
