#include "shim/ttrpc/rpc.hpp"

#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

// Limit of a status message in bytes: enough for one error, and short enough for the logs and events in which it
// appears.
constexpr std::size_t kMaxStatusMessage = 4000;

constexpr std::pair<StatusCode, int> kStatusErrnos[] = {{StatusCode::kInvalidArgument, EINVAL},
                                                        {StatusCode::kDeadlineExceeded, ETIMEDOUT},
                                                        {StatusCode::kResourceExhausted, EMSGSIZE},
                                                        {StatusCode::kFailedPrecondition, EAGAIN},
                                                        {StatusCode::kUnimplemented, ENOSYS}};

// Fields of google.rpc.Status: 1 code, 2 message, 3 details.
Result<void> parse_status(std::string_view data, Response& response) {
  WireReader reader(data);
  while (const auto field = TRY(reader.next())) {
    // A negative int32 is sign-extended to ten bytes on the wire.
    if (field->is_varint(1)) response.code = static_cast<StatusCode>(static_cast<std::int32_t>(field->value));
    if (field->is_bytes(2)) response.message = field->bytes;
  }
  return {};
}

}  // namespace

Result<Request> parse_request(std::string_view data) {
  Request request;
  WireReader reader(data);
  while (const auto field = TRY(reader.next())) {
    // ttrpc.Request: 1 service, 2 method, 3 payload, 4 timeout_nano, 5 metadata.
    if (field->is_bytes(1)) request.service = field->bytes;
    if (field->is_bytes(2)) request.method = field->bytes;
    if (field->is_bytes(3)) request.payload = field->bytes;
    if (field->is_varint(4)) request.timeout_ns = static_cast<std::int64_t>(field->value);
  }
  return request;
}

Result<Response> parse_response(std::string_view data) {
  Response response;
  WireReader reader(data);
  while (const auto field = TRY(reader.next())) {
    if (field->is_bytes(1)) TRY_VOID(parse_status(field->bytes, response));
    if (field->is_bytes(2)) response.payload = field->bytes;
  }
  return response;
}

void append_request(std::string& out, const Request& request) {
  append_bytes_field(out, 1, request.service);
  append_bytes_field(out, 2, request.method);
  if (!request.payload.empty()) append_bytes_field(out, 3, request.payload);
  if (request.timeout_ns != 0) append_varint_field(out, 4, static_cast<std::uint64_t>(request.timeout_ns));
}

void append_response(std::string& out, const Response& response) {
  // A successful response has no status, as in ttrpc's Go implementation.
  if (response.code != StatusCode::kOk) {
    std::string status;
    append_varint_field(status, 1, static_cast<std::uint64_t>(response.code));
    append_bytes_field(status, 2, response.message);
    append_bytes_field(out, 1, status);
  }
  if (!response.payload.empty()) append_bytes_field(out, 2, response.payload);
}

StatusCode status_of_errno(int code) {
  for (const auto& [status, number] : kStatusErrnos)
    if (number == code) return status;
  return StatusCode::kUnknown;
}

int errno_of_status(StatusCode code) {
  for (const auto& [status, number] : kStatusErrnos)
    if (status == code) return number;
  return 0;
}

std::string status_message(const Error& error) {
  std::string text = error.message;
  // The kubelet's event has only this text, so it includes the remedy.
  if (const std::string remedy = base::remedy_of(error); !remedy.empty()) text += " (" + remedy + ")";
  text = base::one_line(text);
  if (text.size() <= kMaxStatusMessage) return text;
  text.resize(kMaxStatusMessage);
  return base::one_line(text) + "...";  // one_line() replaces a UTF-8 character that the cut has split
}

}  // namespace shim
