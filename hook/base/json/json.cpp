// Parses a text in one pass: checks the limits, refuses duplicate keys and builds the document.
//
// nlohmann's SAX parser does not report positions. But it reads its input from an iterator. An iterator that counts
// line ends knows the line of each parser event.
#include "hook/base/json/json.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestToken = 100;
constexpr std::size_t kLongestShownKey = 64;

struct Position {
  unsigned next_line = 1;  // line of the next character
  char last = 0;           // last character read

  // Returns the line of the last token. The parser finds the end of a number, and a syntax error, only after it has
  // read one more character. If that character is a line end, next_line is one too high.
  unsigned line() const { return last == '\n' ? next_line - 1 : next_line; }
};

// The parser copies the iterator, so all copies share one Position.
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

// Builds the document, and the table of lines if the caller wants it. Refuses duplicate keys: one reader of a text
// could use the first value, and another the last.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const Position& position, const JsonLimits& limits, JsonLines* lines)
      : position_(position), limits_(limits), lines_(lines) {}

  Json& root() { return root_; }
  // An empty message means: no fault.
  const JsonFault& fault() const { return fault_; }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = open_.back();
    Json& object = *level.value;
    if (object.size() >= kManyMembers ? !level.long_keys.insert(name).second : object.contains(name)) {
      return fail(fmt::format("the key `{}` occurs twice", shown(name, kLongestShownKey)));
    }
    if (object.size() + 1 == kManyMembers) {
      for (const auto& [known, value] : object.items())
        level.long_keys.insert(known);
      level.long_keys.insert(name);
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& error) override {
    // The text of nlohmann is "[json.exception.parse_error.101] parse error at line 2, column 7: syntax error while
    // ...", or without a position "[json.exception.out_of_range.406] number overflow ...". Keep the part after both
    // prefixes.
    std::string_view text = error.what();
    const auto skip = [&](std::string_view mark, std::string_view end) {
      const std::size_t at = text.starts_with(mark) ? text.find(end) : std::string_view::npos;
      if (at != std::string_view::npos) text.remove_prefix(at + end.size());
    };
    skip("[json.exception", "] ");
    skip("parse error at", ": ");
    // In this message, only the token comes from the document, so only the token may be long and is cut. The text
    // around the token is nlohmann's own.
    const std::size_t at = std::min(text.find("'" + token + "'"), text.size() - 1) + 1;
    const bool is_quoted = at < text.size();
    return fail(fabric::one_line(text.substr(0, at)) + (is_quoted ? shown(token, kLongestToken) : "") +
                fabric::one_line(text.substr(is_quoted ? at + token.size() : at)));
  }

 private:
  // A search in an ordered object is linear, so objects with more members than this get a set of their names.
  static constexpr std::size_t kManyMembers = 32;

  struct Level {
    Json* value;
    std::string pointer;
    std::set<std::string> long_keys = {};
  };

  bool fail(std::string problem) {
    if (fault_.message.empty()) fault_ = {position_.line(), std::move(problem)};
    return false;
  }
  bool count() { return ++values_ <= limits_.values || fail(fmt::format("more than {} values", limits_.values)); }
  // Records the line of the next value and returns the JSON pointer of the value. Returns an empty text if the caller
  // wants no lines.
  std::string note() {
    if (!lines_) return {};
    std::string pointer;
    if (!open_.empty()) {
      const Level& level = open_.back();
      pointer =
          level.pointer + "/" + (level.value->is_array() ? std::to_string(level.value->size()) : escape_pointer(key_));
    }
    (*lines_)[pointer] = position_.line();
    return pointer;
  }
  template <typename T>
  Json* place(T&& value) {
    if (open_.empty()) {
      root_ = Json(std::forward<T>(value));
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(Json(std::forward<T>(value)));
      return &parent.back();
    }
    // The member is appended to the vector of ordered_map, because operator[] would search all members again.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(std::move(key_), Json(std::forward<T>(value)));
    return &members.back().second;
  }
  template <typename T>
  bool put(T&& value) {
    if (!count()) return false;
    note();
    place(std::forward<T>(value));
    return true;
  }
  bool open(Json empty) {
    if (open_.size() >= limits_.depth) return fail(fmt::format("nested deeper than {} levels", limits_.depth));
    if (!count()) return false;
    std::string pointer = note();
    open_.push_back({place(std::move(empty)), std::move(pointer)});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const Position& position_;
  const JsonLimits limits_;
  std::size_t values_ = 0;
  JsonLines* const lines_;
  Json root_;
  JsonFault fault_;
  std::vector<Level> open_;
  std::string key_;
};

std::optional<Json> parse(std::string_view text, const JsonLimits& limits, JsonFault& fault, JsonLines* lines) {
  if (text.size() > limits.bytes) {
    fault = {0, fmt::format("longer than {} bytes", limits.bytes)};
    return std::nullopt;
  }
  // nlohmann's lexer takes a NUL byte as the end of the text, and would ignore the text after it.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fault = {1 + static_cast<unsigned>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n')),
             "a NUL byte"};
    return std::nullopt;
  }
  Position position;
  Builder builder(position, limits, lines);
  try {
    const CountingIterator begin(text.data(), &position);
    const CountingIterator end(text.data() + text.size(), &position);
    if (Json::sax_parse(begin, end, &builder) && builder.fault().message.empty()) return std::move(builder.root());
    fault = builder.fault();
  } catch (const std::exception& error) {  // bad_alloc: no other exception is expected
    fault = {position.line(), error.what()};
  }
  return std::nullopt;
}

std::int64_t now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1000000;
}

}  // namespace

std::string shown(std::string_view text, std::size_t longest) {
  return fabric::printable(text.substr(0, longest)) + (text.size() > longest ? "..." : "");
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
  return make_error("{}, line {}: {}", what, fault.line, fault.message);
}

Result<std::string> read_text_fd(int fd, std::size_t limit, int timeout_ms, std::string_view what) {
  std::string text;
  const std::int64_t deadline = now_ms() + timeout_ms;
  char buffer[16384];
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
    if (text.size() > limit) return Error{fmt::format("{} is longer than {} bytes", what, limit), EFBIG, {}};
  }
}

Result<std::string> read_text_file(const std::string& path, const JsonLimits& limits) {
  // O_NONBLOCK is set, because open(2) of a FIFO without a writer would wait.
  const fabric::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.ok()) return sys_error(errno, "open `{}`", fabric::printable(path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return sys_error(errno, "stat `{}`", fabric::printable(path));
  if (!S_ISREG(status.st_mode)) return make_error("`{}` is no regular file", fabric::printable(path));
  return read_text_fd(fd.get(), limits.bytes, -1, "`" + fabric::printable(path) + "`");
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
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

}  // namespace hook
