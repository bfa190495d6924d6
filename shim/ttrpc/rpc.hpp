// The data of ttrpc requests and responses, and the status of a response (google.rpc.Status).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/result.hpp"

namespace shim {

// Those of google/rpc/code.proto that are used here. A runtime may send others.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
};

// All parts are of the data it was parsed from. Metadata (tracing) is ignored.
struct Request {
  std::string_view service;
  std::string_view method;
  std::string_view payload;
  std::int64_t timeout_ns = 0;  // what the caller still waits; 0: not said
  friend bool operator==(const Request&, const Request&) = default;
};

struct Response {
  StatusCode code = StatusCode::kOk;
  std::string_view message;  // of the status
  std::string_view payload;
  friend bool operator==(const Response&, const Response&) = default;
};

// Errors: not a protobuf message. Unknown fields are skipped, absent ones are empty.
Result<Request> parse_request(std::string_view data);
Result<Response> parse_response(std::string_view data);
void append_request(std::string& out, const Request& request);
void append_response(std::string& out, const Response& response);

// The status for an error's errno, and back. 0 and what has no counterpart: kUnknown, and 0.
//   EINVAL kInvalidArgument, ETIMEDOUT kDeadlineExceeded, EMSGSIZE kResourceExhausted, EAGAIN kFailedPrecondition,
//   ENOSYS kUnimplemented
StatusCode status_of_errno(int code);
int errno_of_status(StatusCode code);

// An error as the message of a status, hint included: one line, valid UTF-8 (Go refuses a message that is not), at most
// a few thousand bytes.
std::string status_message(const Error& error);

}  // namespace shim
