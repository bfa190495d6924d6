// Encodes and decodes the data of ttrpc requests and responses. A response contains a status (google.rpc.Status).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace shim {

// The codes of google/rpc/code.proto that this program uses. A runtime may send other codes.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
};

// A request. All views are parts of the parsed data. Metadata (tracing) is ignored.
struct Request {
  std::string_view service;
  std::string_view method;
  std::string_view payload;
  std::int64_t timeout_ns = 0;  // time for which the caller waits for the response; 0: not reported
  friend bool operator==(const Request&, const Request&) = default;
};

struct Response {
  StatusCode code = StatusCode::kOk;
  std::string_view message;  // text of the status
  std::string_view payload;
  friend bool operator==(const Response&, const Response&) = default;
};

// Parse and write the data of a message. Errors: the data is not a protobuf message. Unknown fields are skipped,
// missing fields are empty.
Result<Request> parse_request(std::string_view data);
Result<Response> parse_response(std::string_view data);
void append_request(std::string& out, const Request& request);
void append_response(std::string& out, const Response& response);

// Converts between an errno and a status. An errno that is not in this list becomes kUnknown, a status that is not in
// it becomes 0.
//   EINVAL kInvalidArgument, ETIMEDOUT kDeadlineExceeded, EMSGSIZE kResourceExhausted, EAGAIN kFailedPrecondition,
//   ENOSYS kUnimplemented
StatusCode status_of_errno(int code);
int errno_of_status(StatusCode code);

// Returns the status message for an error: its text and its hint on one line, at most about 4,000 bytes. The text is
// valid UTF-8, because Go refuses other bytes.
std::string status_message(const Error& error);

}  // namespace shim
