// The line of every value. Only asked for when there is something to say about one.
#include <exception>
#include <vector>

#include "hook/base/json/json_walk.hpp"

namespace hook {
namespace {

std::string escape_pointer(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

// Notes the line of each value by its pointer.
class LineNoter : public nlohmann::json_sax<Json> {
 public:
  LineNoter(Walk& walk, JsonLines& lines) : walk_(walk), lines_(lines) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    levels_.back().name = escape_pointer(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct Level {
    std::string pointer;
    std::string name;      // of the current member
    std::size_t next = 0;  // of the current element
    bool array = false;
  };

  std::string note() {
    std::string pointer;
    if (!levels_.empty()) {
      Level& level = levels_.back();
      pointer = level.pointer + "/" + (level.array ? std::to_string(level.next++) : level.name);
    }
    lines_[pointer] = walk_.position().line();
    return pointer;
  }
  bool value() {
    note();
    return true;
  }
  bool open(bool array) {
    if (!walk_.enter()) return false;
    levels_.push_back({note(), {}, 0, array});
    return true;
  }
  bool close() {
    walk_.leave();
    levels_.pop_back();
    return true;
  }

  Walk& walk_;
  JsonLines& lines_;
  std::vector<Level> levels_;
};

}  // namespace

JsonLines json_lines(std::string_view text) {
  Position position;
  Walk walk(position, JsonLimits{}.depth);
  JsonLines lines;
  LineNoter noter(walk, lines);
  try {
    if (walk_json(text, position, noter)) return lines;
  } catch (const std::exception&) {  // bad_alloc: messages without lines
  }
  return {};
}

}  // namespace hook
