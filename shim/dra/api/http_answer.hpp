// Reads the answers of an HTTP/1.1 server piece by piece, as they arrive: also the endless answer of a watch. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace shim {

// Codes of answers.
namespace http {
inline constexpr unsigned kOk = 200;
inline constexpr unsigned kCreated = 201;
inline constexpr unsigned kUnauthorized = 401;
inline constexpr unsigned kForbidden = 403;
inline constexpr unsigned kNotFound = 404;
inline constexpr unsigned kConflict = 409;
inline constexpr unsigned kExpired = 410;  // the server has deleted the history of the version
inline constexpr unsigned kTooLarge = 413;
inline constexpr unsigned kTooMany = 429;
inline bool is_success(unsigned status) {
  return status == kOk || status == kCreated;
}
// Returns true if the same request can succeed later, without another configuration.
inline bool can_pass(unsigned status) {
  constexpr unsigned kFirstOfServer = 500;
  return status == kConflict || status == kExpired || status == kTooMany || status >= kFirstOfServer;
}
}  // namespace http

// The head of an answer.
struct HttpHead {
  unsigned status = 0;
  std::optional<unsigned> retry_after;  // seconds; nullopt: not stated, or stated as a date
  bool is_chunked = false;
  std::optional<std::uint64_t> length;  // size of the body in bytes; nullopt: chunked, or ended by the connection
  bool closes = false;                  // the server closes the connection after this answer
};
// Parses a head, from the status line to before the empty line. Errors: it is no answer of HTTP/1.0 or 1.1; a length is
// not a number, or two lengths differ; a transfer coding other than chunked. An answer of which two readers see two
// different ends could smuggle a second one.
Result<HttpHead> parse_http_head(std::string_view head);

// The reader of one answer after the other on a connection. The caller limits the body that it takes.
class HttpReader {
 public:
  // Adds bytes of the connection, and reads as much as they allow. Errors: those of parse_http_head(); a head over 64
  // KiB, a wrong chunk.
  Result<void> add(std::string_view bytes);
  // Notes that the server has closed the connection. Errors: the answer is not complete.
  Result<void> end();

  // Returns the head; nullptr: it is not complete.
  const HttpHead* head() const { return head_ ? &*head_ : nullptr; }
  // Returns true if the answer is complete; then add() must not be called before next().
  bool is_complete() const { return state_ == State::kComplete; }
  // Returns the part of the body that has arrived since the last call.
  std::string take_body();
  // Begins the next answer. The bytes after this one are read.
  Result<void> next();

 private:
  enum class State { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kComplete };
  Result<bool> read_head();
  Result<bool> read_body();
  Result<bool> read_chunk_size();
  Result<bool> read_chunk_end();
  Result<bool> read_trailer();
  Result<bool> read_part();
  Result<void> read();
  std::optional<std::string> take_line();

  State state_ = State::kHead;
  std::string rest_;  // bytes that are not read yet
  std::optional<HttpHead> head_;
  std::uint64_t left_ = 0;  // bytes of the body or chunk that have not arrived
  std::string body_;
};

// Cuts the body of a watch into lines, each a JSON object.
class LineReader {
 public:
  explicit LineReader(std::size_t longest) : longest_(longest) {}
  // Returns the lines that are complete now, without empty ones. Errors: a line is longer than the limit.
  Result<std::vector<std::string>> add(std::string_view bytes);

 private:
  std::size_t longest_;
  std::string rest_;
};

}  // namespace shim
