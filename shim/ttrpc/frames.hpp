// Converts between the bytes of a runtime's socket and messages. Two layers:
//
// NRI's multiplexer (containerd/nri pkg/net/multiplex) has two logical connections over one socket. A frame has the id
// of a connection and the length of its payload, both 32 bits, big-endian, and then the payload. Logical connections
// are not opened or closed by frames. Each logical connection is a stream of bytes: a message may begin and end
// anywhere in a frame.
//
// A ttrpc message (containerd/ttrpc PROTOCOL.md) has a header of ten bytes, big-endian: length of the data (32 bits),
// stream (32 bits), type (8), flags (8). The data follows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace shim {

// Reads the first four bytes, which must exist.
inline std::uint32_t read_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4))
    value = (value << 8) | static_cast<unsigned char>(byte);
  return value;
}

inline void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

// The bytes of a header that have arrived so far.
template <std::size_t kWhole>
struct PartialHeader {
  std::array<char, kWhole> bytes{};
  std::size_t size = 0;
  std::string_view text() const { return {bytes.data(), size}; }
  // Moves the bytes that the header lacks from the front of input to `bytes`. Returns true if the header is complete.
  bool take(std::string_view& input) {
    const std::size_t taken = input.copy(bytes.data() + size, kWhole - size);
    size += taken;
    input.remove_prefix(taken);
    return size == kWhole;
  }
};

// Logical connection for requests of the runtime to the plugin.
inline constexpr std::uint32_t kPluginConnection = 1;
// Logical connection for requests of the plugin to the runtime.
inline constexpr std::uint32_t kRuntimeConnection = 2;

inline constexpr std::size_t kMuxHeaderSize = 8;
// Longest payload that a runtime sends: 16 MiB up to NRI 0.6.1, 4 MiB + 10 bytes since 0.7.0.
inline constexpr std::size_t kMaxMuxPayload = std::size_t{16} << 20;

// Consecutive bytes of one logical connection: the payload of a frame, or a part of it.
struct MuxPiece {
  std::uint32_t connection = 0;
  std::string_view bytes = {};
  friend bool operator==(const MuxPiece&, const MuxPiece&) = default;
};

// Splits the socket's bytes into pieces. The input may be cut anywhere: the decoder stores an incomplete header until
// the next call.
class MuxDecoder {
 public:
  // Returns the next piece, which is part of input, and removes it from the front of input. nullopt: input is empty.
  // Errors: a connection id that NRI does not have; a frame longer than any runtime sends. After an error the stream is
  // unusable: each further call with input fails with the same error.
  Result<std::optional<MuxPiece>> next(std::string_view& input);

  // Returns false if the input so far ends within a frame.
  bool between_frames() const { return header_.size == 0 && left_ == 0; }

 private:
  Result<void> begin_frame();

  PartialHeader<kMuxHeaderSize> header_;
  std::uint32_t connection_ = 0;
  std::size_t left_ = 0;  // bytes of the frame's payload that have not been returned
};

// Appends a frame's header. The caller appends the payload. length: 1 to kMaxMuxPayload.
void append_mux_header(std::string& out, std::uint32_t connection, std::size_t length);

enum class MessageType : std::uint8_t { kRequest = 1, kResponse = 2, kData = 3 };

inline constexpr std::uint8_t kFlagRemoteOpen = 0x2;  // a stream: more messages follow

inline constexpr std::size_t kMessageHeaderSize = 10;
// Longest data that ttrpc's receivers in Go accept (channel.go, messageLengthMax).
inline constexpr std::size_t kMaxSendData = std::size_t{4} << 20;
// Longest data that this plugin accepts. The limit is above kMaxSendData, because ttrpc before 1.2.6 (containerd 1.7)
// sends longer messages than it accepts: the Synchronize of a large node would otherwise be lost. NRI's frames limit
// the
// data to kMaxMuxPayload.
inline constexpr std::size_t kMaxReceiveData = std::size_t{16} << 20;

struct Message {
  std::uint32_t stream = 0;
  MessageType type = MessageType::kRequest;
  std::uint8_t flags = 0;
  std::uint32_t length = 0;    // length of the data, from the header
  std::string_view data = {};  // empty if too_long
  bool too_long = false;       // the data exceeds the buffer and was skipped
  friend bool operator==(const Message&, const Message&) = default;
};

// Splits the bytes of one logical connection into messages. A message may begin and end anywhere in the input.
class MessageDecoder {
 public:
  // buffer: for messages that arrive in several pieces. Longer messages are skipped (Message::too_long).
  explicit MessageDecoder(std::span<char> buffer) : buffer_(buffer) {}

  // Returns the next message and removes its bytes from the front of input. The message's data is part of input or
  // buffer, and is valid until the next call. nullopt: input is empty and no message is complete. Errors: a message
  // type that ttrpc does not have; each further call fails with the same error.
  Result<std::optional<Message>> next(std::string_view& input);

  // Returns false if the input so far ends within a message.
  bool between_messages() const { return header_.size == 0; }
  // Returns the number of buffer bytes that the last or current message uses.
  std::size_t buffer_used() const { return got_; }

 private:
  bool take_data(std::string_view& input);

  std::span<char> buffer_;
  PartialHeader<kMessageHeaderSize> header_;
  Message current_;
  std::size_t got_ = 0;      // bytes of the data in the buffer
  std::size_t skipped_ = 0;  // dropped bytes of data that is too long
};

void append_message_header(std::string& out, const Message& message);

// Appends a message as frames that the readers of all versions accept. A reader fails on a frame that is longer than
// the buffer it reads into (multiplex conn.Read: ENOMEM). The reader takes a header into a buffer of 4096 bytes, and
// then the data into a buffer of the length in the header. So a message of up to 4096 bytes is one frame, and a longer
// message has its header in a separate frame. message.data: at most kMaxSendData bytes. message.length is ignored.
void append_frames(std::string& out, std::uint32_t connection, Message message);

}  // namespace shim
