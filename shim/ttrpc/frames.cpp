#include "shim/ttrpc/frames.hpp"

namespace shim {
namespace {

// Size of the buffer (bufio.Reader) in which ttrpc's Go implementation reads a header.
constexpr std::size_t kReaderBuffer = 4096;

}  // namespace

Result<std::optional<MuxPiece>> MuxDecoder::next(std::string_view& input) {
  while (!input.empty()) {
    if (left_ == 0) {
      if (!header_.take(input)) return std::optional<MuxPiece>();
      TRY_VOID(begin_frame());
      continue;  // skips an empty frame, which has no payload
    }
    const MuxPiece piece{connection_, input.substr(0, left_)};
    left_ -= piece.bytes.size();
    input.remove_prefix(piece.bytes.size());
    return std::optional(piece);
  }
  return std::optional<MuxPiece>();
}

// Evaluates a frame's complete header. After an error header_ stays as it is, so that each further call fails with the
// same error.
Result<void> MuxDecoder::begin_frame() {
  const std::uint32_t connection = read_u32(header_.text());
  const std::size_t length = read_u32(header_.text().substr(4));
  // An unknown connection is an error, unlike in Go, which silently drops the frame: as no version of NRI sends such a
  // frame, the decoder has lost the boundaries of frames.
  if (connection != kPluginConnection && connection != kRuntimeConnection)
    return make_error("the runtime sent a frame for connection {}: NRI has connections {} and {} only", connection,
                      kPluginConnection, kRuntimeConnection);
  if (length > kMaxMuxPayload)
    return make_error("the runtime sent a frame of {} bytes on connection {}: the limit is {}", length, connection,
                      kMaxMuxPayload);
  connection_ = connection;
  left_ = length;
  header_.size = 0;
  return {};
}

void append_mux_header(std::string& out, std::uint32_t connection, std::size_t length) {
  append_u32(out, connection);
  append_u32(out, static_cast<std::uint32_t>(length));
}

Result<std::optional<Message>> MessageDecoder::next(std::string_view& input) {
  // The counters are reset only here and not after a message, because buffer_used() needs them until this call.
  if (header_.size == 0) got_ = skipped_ = 0;
  if (!header_.take(input)) return std::optional<Message>();
  const std::string_view header = header_.text();
  const auto type = static_cast<MessageType>(header[8]);
  if (type < MessageType::kRequest || type > MessageType::kData)
    return make_error("the runtime sent a ttrpc message of type {}: there are types 1 to 3 only",
                      static_cast<unsigned>(type));
  current_ = {.stream = read_u32(header.substr(4)),
              .type = type,
              .flags = static_cast<std::uint8_t>(header[9]),
              .length = read_u32(header),
              .data = {},
              .too_long = false};
  // The data of a message that is too long is skipped. The next message is then still found, and the request can be
  // answered with an error.
  current_.too_long = current_.length > buffer_.size();
  if (!take_data(input)) return std::optional<Message>();
  header_.size = 0;
  return std::optional(current_);
}

// Returns true if all data has arrived or was skipped.
bool MessageDecoder::take_data(std::string_view& input) {
  std::size_t& done = current_.too_long ? skipped_ : got_;
  const std::string_view part = input.substr(0, current_.length - done);
  input.remove_prefix(part.size());
  if (!current_.too_long && part.size() == current_.length) {  // the data is complete in input, so it is not copied
    current_.data = part;
    return true;
  }
  if (!current_.too_long) part.copy(buffer_.data() + got_, part.size());
  done += part.size();
  if (done < current_.length) return false;
  if (!current_.too_long) current_.data = std::string_view(buffer_.data(), got_);
  return true;
}

void append_message_header(std::string& out, const Message& message) {
  append_u32(out, message.length);
  append_u32(out, message.stream);
  out.push_back(static_cast<char>(message.type));
  out.push_back(static_cast<char>(message.flags));
}

void append_frames(std::string& out, std::uint32_t connection, Message message) {
  message.length = static_cast<std::uint32_t>(message.data.size());
  const std::size_t whole = kMessageHeaderSize + message.data.size();
  const bool one_frame = whole <= kReaderBuffer;
  append_mux_header(out, connection, one_frame ? whole : kMessageHeaderSize);
  append_message_header(out, message);
  if (!one_frame) append_mux_header(out, connection, message.data.size());
  out.append(message.data);
}

}  // namespace shim
