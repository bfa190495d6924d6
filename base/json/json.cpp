// Parses a text in one pass: checks the limits, refuses duplicate keys and builds the document.
//
// nlohmann's SAX parser does not report positions. But it reads its input from an iterator. An iterator that notes how
// far it has read leads to the line of each parser event.
#include "base/json/json.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/json/quick_reader.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace base {
namespace {

constexpr std::size_t kLongestToken = 100;
constexpr std::size_t kLongestShownKey = 64;

class Position {
 public:
  explicit Position(std::string_view text) : begin_(text.data()), read_(begin_), counted_(begin_) {}
  void set(const char* read) { read_ = read; }
  // Returns the line of the last token. The parser finds the end of a number, and a syntax error, only after it has
  // read one more character. A line end that was read last still belongs to the line that it ends.
  unsigned line() {
    next_line_ += static_cast<unsigned>(std::count(counted_, read_, '\n'));
    counted_ = read_;
    return read_ != begin_ && read_[-1] == '\n' ? next_line_ - 1 : next_line_;
  }

 private:
  const char* begin_;
  const char* read_;        // the position after the last character that was read
  const char* counted_;     // the line ends before it are counted in next_line_
  unsigned next_line_ = 1;  // number of the line in which counted_ is
};

// The parser copies the iterator, so all copies share one Position.
class NotingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  NotingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  char operator*() const { return *at_; }
  NotingIterator& operator++() {
    position_->set(++at_);
    return *this;
  }
  NotingIterator operator++(int) {
    NotingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const NotingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const NotingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

// Builds the document, and the table of lines if the caller wants it. Refuses duplicate keys: one reader of a text
// could use the first value, and another the last.
//
// The values of an open object or array wait on a stack until it closes. Its number of members is then known, so no
// object has to grow: an ordered object that grows copies its members, with all values below them.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(Position& position, const JsonLimits& limits, JsonLines* lines)
      : position_(position), limits_(limits), lines_(lines) {}

  Json take_root() { return std::move(values_.front().second); }
  // A fault with an empty message means that the text is valid.
  const JsonFault& fault() const { return fault_; }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  // Texts are copied and not moved: the lexer keeps its buffer, and the copy has only the length of the text.
  bool string(string_t& value) override { return put(std::as_const(value)); }
  bool string(std::string_view value) { return put(std::string(value)); }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool start_object(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override { return key(std::string_view(name)); }
  bool key(std::string_view name) {
    Level& level = open_.back();
    const std::size_t size = values_.size() - level.first;
    if (size >= kManyMembers ? !level.long_keys.insert(std::string(name)).second : has_key(level, name))
      return fail(fmt::format("the key `{}` occurs twice", shown(name, kLongestShownKey)));
    if (size + 1 == kManyMembers) {
      for (std::size_t i = level.first; i < values_.size(); ++i)
        level.long_keys.insert(values_[i].first);
      level.long_keys.emplace(name);
    }
    key_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& error) override {
    // The position "line 1, column 5: " becomes a number: this parser knows the line.
    std::string_view text = json_cause(error.what());
    const std::size_t colon = text.starts_with("line ") ? text.find(": ") : std::string_view::npos;
    if (colon != std::string_view::npos) {
      const std::size_t column = text.substr(0, colon).rfind(' ') + 1;
      fault_.column = parse_number<unsigned>(text.substr(column, colon - column)).value_or(0);
      text.remove_prefix(colon + 2);
    }
    // Only the token comes from the document and may be long, so only the token is cut. The text around it is
    // nlohmann's.
    const std::size_t at = std::min(text.find("'" + token + "'"), text.size() - 1) + 1;
    const bool is_quoted = at < text.size();
    return fail(one_line(text.substr(0, at)) + (is_quoted ? shown(token, kLongestToken) : "") +
                one_line(text.substr(is_quoted ? at + token.size() : at)));
  }

 private:
  // The search for a key is linear, so objects with more members than this get a set of their names.
  static constexpr std::size_t kManyMembers = 32;

  // An object or array whose end was not read yet.
  struct Level {
    bool is_array;
    std::size_t first;  // index in values_ of the level's first value
    std::string key;    // the object's or array's own key in the object above
    std::string pointer;
    std::set<std::string> long_keys = {};
  };

  bool fail(std::string problem) {
    if (fault_.message.empty()) fault_ = {position_.line(), fault_.column, std::move(problem)};
    return false;
  }
  bool count() { return ++count_ <= limits_.values || fail(fmt::format("more than {} values", limits_.values)); }
  bool has_key(const Level& level, std::string_view name) const {
    return std::any_of(values_.begin() + static_cast<std::ptrdiff_t>(level.first), values_.end(),
                       [&](const auto& value) { return value.first == name; });
  }
  // Records the line of the next value and returns the JSON pointer of the value. Returns an empty text if the caller
  // wants no lines.
  std::string note() {
    if (!lines_) return {};
    std::string pointer;
    if (!open_.empty()) {
      const Level& level = open_.back();
      pointer =
          level.pointer + "/" + (level.is_array ? std::to_string(values_.size() - level.first) : escape_pointer(key_));
    }
    (*lines_)[pointer] = position_.line();
    return pointer;
  }
  template <typename T>
  bool put(T&& value) {
    if (!count()) return false;
    note();
    values_.emplace_back(std::exchange(key_, {}), Json(std::forward<T>(value)));
    return true;
  }
  bool open(bool is_array) {
    if (open_.size() >= limits_.depth) return fail(fmt::format("nested deeper than {} levels", limits_.depth));
    if (!count()) return false;
    std::string pointer = note();
    open_.push_back({is_array, values_.size(), std::exchange(key_, {}), std::move(pointer)});
    return true;
  }
  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    const auto first = values_.begin() + static_cast<std::ptrdiff_t>(level.first);
    const auto size = static_cast<std::size_t>(values_.end() - first);
    Json whole(level.is_array ? Json::value_t::array : Json::value_t::object);
    if (level.is_array) {
      auto& elements = whole.get_ref<Json::array_t&>();
      elements.reserve(size);
      std::for_each(first, values_.end(), [&](auto& value) { elements.push_back(std::move(value.second)); });
    } else {
      // The members are appended to the vector of ordered_map, because operator[] would search all members again.
      auto& members = whole.get_ref<Json::object_t&>();
      members.reserve(size);
      std::for_each(first, values_.end(), [&](auto& value) {
        members.Container::emplace_back(std::move(value.first), std::move(value.second));
      });
    }
    values_.erase(first, values_.end());
    values_.emplace_back(std::move(level.key), std::move(whole));
    return true;
  }

  Position& position_;
  const JsonLimits limits_;
  std::size_t count_ = 0;
  JsonLines* const lines_;
  JsonFault fault_;
  std::vector<Level> open_;
  std::vector<std::pair<std::string, Json>> values_;  // values with their keys; an element of an array has an empty key
  std::string key_;
};

std::optional<Json> parse(std::string_view text, const JsonLimits& limits, JsonFault& fault, JsonLines* lines) {
  if (text.size() > limits.bytes) {
    fault = {0, 0, fmt::format("longer than {} bytes", limits.bytes)};
    return std::nullopt;
  }
  // nlohmann's lexer takes a NUL byte as the end of the text, and would ignore the text after it.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fault = {1 + static_cast<unsigned>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n')),
             0, "a NUL byte"};
    return std::nullopt;
  }
  Position position(text);
  try {
    // The quick reader knows no lines and no causes: a text that it refuses is read again.
    Builder quick(position, limits, nullptr);
    if (!lines && QuickReader(text, quick).read()) return quick.take_root();
    Builder builder(position, limits, lines);
    const NotingIterator begin(text.data(), &position);
    const NotingIterator end(text.data() + text.size(), &position);
    if (Json::sax_parse(begin, end, &builder) && builder.fault().message.empty()) return builder.take_root();
    fault = builder.fault();
  } catch (const std::exception&) {  // the parser throws only bad_alloc
    fault = {position.line(), 0, error_of_exception().message};
  }
  return std::nullopt;
}

bool is_plain(std::string_view text) {
  for (; text.size() >= 8; text.remove_prefix(8))
    if (!are_plain_8(text.data())) return false;
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\';
  });
}

void append_text(const std::string& value, std::string& text) {
  if (!is_plain(value)) {
    text += Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  text += '"';
  text += value;
  text += '"';
}

void append_text(const Json& json, std::string& text) {
  const char* separator = "";
  if (const auto* members = json.get_ptr<const Json::object_t*>()) {
    text += '{';
    for (const auto& [key, value] : *members) {
      text += std::exchange(separator, ",");
      append_text(key, text);
      text += ':';
      append_text(value, text);
    }
    text += '}';
  } else if (const auto* elements = json.get_ptr<const Json::array_t*>()) {
    text += '[';
    for (const Json& element : *elements) {
      text += std::exchange(separator, ",");
      append_text(element, text);
    }
    text += ']';
  } else if (const auto* value = json.get_ptr<const std::string*>()) {
    append_text(*value, text);
  } else if (const auto* kept = json.get_ptr<const Json::binary_t*>()) {
    text.append(kept->begin(), kept->end());  // a part of a text (to_document())
  } else if (const auto* number = json.get_ptr<const Json::number_unsigned_t*>()) {
    char digits[20];  // the largest 64-bit number has 20 digits
    const auto written = std::to_chars(digits, digits + sizeof digits, *number);
    text.append(digits, written.ptr);
  } else if (json.is_boolean()) {
    text += json.get<bool>() ? "true" : "false";
  } else {
    text += json.dump();
  }
}

std::int64_t now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1000000;
}

Error too_long(std::string_view what, std::size_t limit) {
  return Error{fmt::format("{} is longer than {} bytes", what, limit), EFBIG, {}};
}

}  // namespace

std::string shown(std::string_view text, std::size_t longest) {
  return printable(text.substr(0, longest)) + (text.size() > longest ? "..." : "");
}

std::string escape_pointer(std::string_view name) {
  std::string text;
  for (const char c : name)
    text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits, JsonFault& fault) {
  return parse(text, limits, fault, nullptr);
}

std::string to_text(const Json& json) {
  std::string text;
  append_text(json, text);
  return text;
}

JsonLines json_lines(std::string_view text) {
  JsonFault fault;
  JsonLines lines;
  return parse(text, {}, fault, &lines) ? lines : JsonLines();
}

Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  JsonFault fault;
  auto json = try_parse_json(text, limits, fault);
  if (json) return *std::move(json);
  if (fault.line == 0) return make_error("{}: {}", what, fault.message);
  if (fault.column == 0) return make_error("{}, line {}: {}", what, fault.line, fault.message);
  return make_error("{}, line {}, column {}: {}", what, fault.line, fault.column, fault.message);
}

Result<std::string> read_text_fd(int fd, std::size_t limit, int timeout_ms, std::string_view what,
                                 bool (*is_whole)(std::string_view text)) {
  std::string text;
  const std::int64_t deadline = now_ms() + timeout_ms;
  char buffer[16384] RDMA_INIT_UNSET;
  while (true) {
    if (timeout_ms >= 0) {
      pollfd waiting{fd, POLLIN, 0};
      const std::int64_t left = deadline - now_ms();
      const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return make_error("cannot read {}: it has not ended after {} ms", what, timeout_ms);
    }
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || (errno == EAGAIN && timeout_ms >= 0))) continue;
    if (count < 0) return sys_error(errno, "cannot read {}", what);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > limit) return too_long(what, limit);
    if (is_whole && is_whole(text)) return text;
  }
}

Result<std::string> read_text_of(int fd, const struct stat& status, std::size_t limit, std::string_view what) {
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > limit) return too_long(what, limit);
  std::string text(size + 1, '\0');
  for (std::size_t done = 0;;) {
    const ssize_t count = TEMP_FAILURE_RETRY(::read(fd, text.data() + done, text.size() - done));
    if (count < 0) return sys_error(errno, "cannot read {}", what);
    done += static_cast<std::size_t>(count);
    if (done > limit) return too_long(what, limit);
    // A read that returns less than the file could have is the end, if the file has the size that it had before.
    if (count == 0 || (done == size && size > 0)) {
      text.resize(done);
      return text;
    }
    if (done == text.size()) text.resize(2 * text.size());
  }
}

Result<std::string> read_text_file(const std::string& path, const JsonLimits& limits) {
  const UniqueFd fd = open_to_read(AT_FDCWD, path.c_str());
  if (!fd.ok()) return sys_error(errno, "open `{}`", printable(path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return sys_error(errno, "stat `{}`", printable(path));
  if (!S_ISREG(status.st_mode)) return make_error("`{}` is no regular file", printable(path));
  return read_text_of(fd.get(), status, limits.bytes, "`" + printable(path) + "`");
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

Json& add_member(Json& object, const char* name) {
  if (object.is_null()) object = Json::object();
  auto& members = object.get_ref<Json::object_t&>();
  const auto found = members.find(name);
  if (found != members.end()) return found->second;
  if (members.size() == members.capacity()) {
    Json::object_t larger;
    larger.reserve(2 * members.size() + 4);
    for (auto& [key, value] : members)
      larger.Container::emplace_back(key, std::move(value));
    members = std::move(larger);
  }
  return members.Container::emplace_back(name, nullptr).second;
}

Error wrong_member(const char* name) {
  return make_error("`{}` is missing or wrong", name);
}

Result<std::string> text_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  const auto* text = value ? value->get_ptr<const std::string*>() : nullptr;
  if (!text) return wrong_member(name);
  return *text;
}

Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most) {
  const Json* value = member(object, name);
  if (!value || !value->is_number_unsigned() || value->get<std::uint64_t>() > most) return wrong_member(name);
  return value->get<std::uint64_t>();
}

Error unknown_member(const std::string& name) {
  return make_error("unknown member `{}`", shown(name, kLongestShownKey));
}

}  // namespace base

RDMA_INIT_JSON_FUNCTIONS()
