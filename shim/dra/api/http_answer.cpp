#include "shim/dra/api/http_answer.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.hpp"

namespace shim {
namespace {

constexpr std::size_t kLongestHead = std::size_t{64} << 10;
constexpr std::size_t kLongestChunkLine = 256;  // bytes of a chunk's size with extensions
constexpr std::string_view kHeadEnd = "\r\n\r\n";

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

Error wrong_answer(std::string_view what, std::string_view text) {
  constexpr std::size_t kShown = 64;
  return make_error("the API server's answer has {}: `{}`", what, base::printable(text, kShown));
}

Result<unsigned> status_of(std::string_view line) {
  // "HTTP/1.1 200 OK"
  constexpr std::string_view kStart = "HTTP/1.1 ";
  constexpr std::size_t kDigits = 3;
  constexpr unsigned kLeast = 100;
  const bool is_http = line.starts_with(kStart) || line.starts_with("HTTP/1.0 ");
  const std::string_view rest = is_http ? line.substr(kStart.size()) : std::string_view();
  const std::string_view digits = rest.substr(0, rest.find(' '));
  const unsigned status = is_digits(digits) ? base::parse_number<unsigned>(digits).value_or(0) : 0;
  if (digits.size() == kDigits && status >= kLeast) return status;
  return wrong_answer("no status line", line);
}

Result<void> read_header(std::string_view line, HttpHead& head) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || line.substr(0, colon).find(' ') != std::string_view::npos)
    return wrong_answer("a wrong header", line);
  const std::string name = lower(line.substr(0, colon));
  const std::string value = lower(base::trim(line.substr(colon + 1)));
  const auto number = is_digits(value) ? base::parse_number<std::uint64_t>(value) : std::optional<std::uint64_t>();
  if (name == "content-length") {
    if (!number || (head.length && head.length != number)) return wrong_answer("no length", line);
    head.length = number;
  }
  if (name == "transfer-encoding") {
    if (value != "chunked" || head.is_chunked) return wrong_answer("an unknown transfer coding", line);
    head.is_chunked = true;
  }
  if (name == "connection" && value == "close") head.closes = true;
  if (name == "retry-after" && number)
    head.retry_after = static_cast<unsigned>(std::min<std::uint64_t>(*number, 86400));
  return {};
}

}  // namespace

Result<HttpHead> parse_http_head(std::string_view text) {
  HttpHead head;
  const auto lines = base::split(text, '\n');
  for (std::size_t at = 0; at < lines.size(); ++at) {
    std::string_view line = lines[at];
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_of(std::string_view("\r\0", 2)) != std::string_view::npos)
      return wrong_answer("a wrong header", line);
    if (at == 0) {
      head.status = TRY(status_of(line));
      head.closes = line.starts_with("HTTP/1.0");
    } else {
      TRY_VOID(read_header(line, head));
    }
  }
  if (head.is_chunked && head.length) return wrong_answer("two lengths", "Transfer-Encoding, Content-Length");
  constexpr unsigned kNoContent = 204;
  constexpr unsigned kNotModified = 304;
  constexpr unsigned kFirstFinal = 200;
  const bool has_none = head.status < kFirstFinal || head.status == kNoContent || head.status == kNotModified;
  if (has_none) head.length = 0;
  if (has_none) head.is_chunked = false;
  if (!head.is_chunked && !head.length) head.closes = true;
  return head;
}

std::optional<std::string> HttpReader::take_line() {
  const std::size_t end = rest_.find("\r\n");
  if (end == std::string::npos) return std::nullopt;
  std::string line = rest_.substr(0, end);
  rest_.erase(0, end + 2);
  return line;
}

// Each of the next functions returns true if it has read something, so that the next step may go on.
Result<bool> HttpReader::read_head() {
  const std::size_t end = rest_.find(kHeadEnd);
  if (end == std::string::npos || end > kLongestHead) {
    if (rest_.size() >= kLongestHead + kHeadEnd.size()) return wrong_answer("a head that is too long", rest_);
    return false;
  }
  head_ = TRY(parse_http_head(std::string_view(rest_).substr(0, end)));
  rest_.erase(0, end + kHeadEnd.size());
  left_ = head_->length.value_or(0);
  state_ = head_->is_chunked ? State::kChunkSize : State::kBody;
  if (head_->length == 0) state_ = State::kComplete;
  return true;
}

Result<bool> HttpReader::read_body() {
  const bool is_measured = state_ == State::kChunk || head_->length.has_value();
  const std::uint64_t bytes = is_measured ? std::min<std::uint64_t>(left_, rest_.size()) : rest_.size();
  if (bytes == 0) return false;
  body_.append(rest_, 0, bytes);
  rest_.erase(0, bytes);
  if (!is_measured) return true;
  left_ -= bytes;
  if (left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kComplete;
  return true;
}

Result<bool> HttpReader::read_chunk_size() {
  constexpr int kHex = 16;
  if (rest_.size() > kLongestChunkLine + 1 && rest_.find("\r\n") > kLongestChunkLine)
    return wrong_answer("a wrong chunk", rest_);
  const auto line = take_line();
  if (!line) return false;
  const std::string_view digits = base::trim(std::string_view(*line).substr(0, line->find(';')));
  const auto size = digits.starts_with('-') ? std::nullopt : base::parse_number<std::uint64_t>(digits, kHex);
  if (!size) return wrong_answer("a wrong chunk", *line);
  left_ = *size;
  state_ = *size == 0 ? State::kTrailer : State::kChunk;
  return true;
}

Result<bool> HttpReader::read_chunk_end() {
  if (rest_.size() < 2) return false;
  if (!rest_.starts_with("\r\n"))
    return wrong_answer("a chunk of another length", std::string_view(rest_).substr(0, 2));
  rest_.erase(0, 2);
  state_ = State::kChunkSize;
  return true;
}

Result<bool> HttpReader::read_trailer() {
  const auto line = take_line();
  if (!line && rest_.size() > kLongestHead) return wrong_answer("a trailer that is too long", rest_);
  if (line && line->empty()) state_ = State::kComplete;
  return line.has_value();
}

Result<bool> HttpReader::read_part() {
  switch (state_) {
    case State::kHead:
      return read_head();
    case State::kBody:
    case State::kChunk:
      return read_body();
    case State::kChunkSize:
      return read_chunk_size();
    case State::kChunkEnd:
      return read_chunk_end();
    case State::kTrailer:
      return read_trailer();
    default:
      return false;
  }
}

Result<void> HttpReader::read() {
  while (TRY(read_part()))
    ;
  return {};
}

Result<void> HttpReader::add(std::string_view bytes) {
  rest_ += bytes;
  return read();
}

Result<void> HttpReader::end() {
  const bool ends_body = state_ == State::kBody && !head_->length;
  if (ends_body) state_ = State::kComplete;
  if (is_complete()) return {};
  return Error{"the API server closed the connection within an answer"};
}

std::string HttpReader::take_body() {
  return std::exchange(body_, {});
}

Result<void> HttpReader::next() {
  state_ = State::kHead;
  head_.reset();
  left_ = 0;
  body_.clear();
  return read();
}

Result<std::vector<std::string>> LineReader::add(std::string_view bytes) {
  rest_ += bytes;
  std::vector<std::string> lines;
  std::size_t begin = 0;
  std::size_t longest = 0;
  for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, end - begin);
    if (end > begin) lines.push_back(rest_.substr(begin, end - begin));
  }
  rest_.erase(0, begin);
  if (std::max(longest, rest_.size()) <= longest_) return lines;
  return make_error("a line of the watch has more than {} bytes", longest_);
}

}  // namespace shim
