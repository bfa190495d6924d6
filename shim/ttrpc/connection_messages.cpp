// What a Connection does with messages; waiting, reading and writing are in connection.cpp.
#include <malloc.h>

#include <cerrno>
#include <exception>

#include "fabric/text.hpp"
#include "shim/ttrpc/connection.hpp"

namespace shim {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

namespace {

// Beyond it a message is an exception, whose memory is not kept.
constexpr std::size_t kUsualSize = std::size_t{64} << 10;

void shrink(std::string& buffer) {
  if (buffer.capacity() > kUsualSize) std::string().swap(buffer);
}

}  // namespace

Result<void> Connection::take(std::string_view bytes) {
  while (const auto piece = TRY(mux_.next(bytes)))
    TRY_VOID(take_piece(*piece));
  return {};
}

Result<void> Connection::take_piece(const MuxPiece& piece) {
  const bool is_request = piece.connection == kPluginConnection;
  Inbox& inbox = is_request ? requests_ : answers_;
  std::string_view bytes = piece.bytes;
  while (const auto message = TRY(inbox.decoder.next(bytes))) {
    TRY_VOID(is_request ? serve_request(*message) : take_answer(*message));
    inbox.buffer.release(inbox.decoder.buffer_used());
    // What a handler made of a long message is free now, but the heap keeps it.
    if (message->length > kUsualSize) ::malloc_trim(0);
  }
  return {};
}

Result<void> Connection::serve_request(const Message& message) {
  if (message.type != MessageType::kRequest)
    return make_error("ttrpc message of type {} on the connection for requests", static_cast<int>(message.type));
  // As Go's server: the answer bears the stream that is wrong, and nothing is done twice.
  if (message.stream % 2 == 0)
    return respond(message.stream, Error{"the stream of a request must have an odd number", EINVAL});
  if (message.stream <= last_request_)
    return respond(message.stream, Error{"the stream of a request must be higher than those before", EINVAL});
  last_request_ = message.stream;
  handling_ = true;
  auto answer = handle(message);
  handling_ = false;
  return respond(message.stream, answer);
}

Result<std::string> Connection::handle(const Message& message) {
  if (message.too_long)
    return Error{fmt::format("request of {} bytes: the limit is {}", message.length, kMaxReceiveData), EMSGSIZE};
  if ((message.flags & kFlagRemoteOpen) != 0) return Error{"streams are not supported", ENOSYS};
  const auto request = parse_request(message.data);
  if (!request) return Error{request.error().message, EINVAL};
  try {
    return handler_(*request);
  } catch (const std::exception& problem) {
    // A crash would have the container created without its devices; an error does not.
    return Error{fmt::format("unexpected: {}", problem.what()), ENOMEM};
  }
}

Result<void> Connection::respond(std::uint32_t stream, const Result<std::string>& answer) {
  data_.clear();
  std::string text;
  Response response;
  if (answer) {
    response.payload = *answer;
  } else {
    text = status_message(answer.error());
    response = {status_of_errno(answer.error().code), text, {}};
  }
  append_response(data_, response);
  if (data_.size() > kMaxSendData)
    return respond(stream,
                   Error{fmt::format("answer of {} bytes: the limit is {}", data_.size(), kMaxSendData), EMSGSIZE});
  return send_message(kPluginConnection, MessageType::kResponse, stream);
}

// The message's data is data_.
Result<void> Connection::send_message(std::uint32_t connection, MessageType type, std::uint32_t stream) {
  out_.clear();
  append_frames(out_, connection, {.stream = stream, .type = type, .data = data_});
  auto flushed = flush();
  shrink(data_);
  shrink(out_);
  return flushed;
}

Result<void> Connection::take_answer(const Message& message) {
  if (message.type != MessageType::kResponse)
    return make_error("ttrpc message of type {} on the connection for answers", static_cast<int>(message.type));
  if (message.stream % 2 == 0 || message.stream >= next_call_)
    return make_error("ttrpc answer to stream {}, which was never asked", message.stream);
  if (!pending_ || pending_->stream != message.stream || pending_->answer) return {};  // too late, or repeated
  if (message.too_long) {
    pending_->answer.emplace(
        Error{fmt::format("answer of {} bytes: the limit is {}", message.length, kMaxReceiveData), EMSGSIZE});
    return {};
  }
  const Response response = TRY(parse_response(message.data));
  if (response.code == StatusCode::kOk) {
    pending_->answer.emplace(std::string(response.payload));
  } else {
    pending_->answer.emplace(Error{fmt::format("the runtime refused: {} (status {})",
                                               fabric::printable(response.message), static_cast<int>(response.code)),
                                   errno_of_status(response.code)});
  }
  return {};
}

}  // namespace shim
