// The bytes of a runtime's socket as messages, and back. Two layers:
//
// NRI's multiplexer (containerd/nri pkg/net/multiplex): two logical connections over one socket. A frame is the id of
// a connection and the length of its payload, both 32 bits, big-endian, then the payload. Nothing opens or closes a
// logical connection. Each of them is a stream of bytes: what it carries may begin and end anywhere in a frame.
//
// ttrpc messages (containerd/ttrpc PROTOCOL.md): a header of ten bytes, big-endian: length of the data (32 bits),
// stream (32 bits), type (8), flags (8); then the data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shim/result.hpp"

namespace shim {

// The first four bytes, which must be there.
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

// The bytes of a header that have come so far.
template <std::size_t kWhole>
struct PartialHeader {
  std::array<char, kWhole> bytes{};
  std::size_t size = 0;
  std::string_view text() const { return {bytes.data(), size}; }
  // Takes what it lacks from the front of input. True: it is whole.
  bool take(std::string_view& input) {
    const std::size_t taken = input.copy(bytes.data() + size, kWhole - size);
    size += taken;
    input.remove_prefix(taken);
    return size == kWhole;
  }
};

// Requests of the runtime to the plugin.
inline constexpr std::uint32_t kPluginConnection = 1;
// Requests of the plugin to the runtime.
inline constexpr std::uint32_t kRuntimeConnection = 2;

inline constexpr std::size_t kMuxHeaderSize = 8;
// The longest payload that any runtime sends: 16 MiB up to NRI 0.6.1, 4 MiB + 10 bytes since 0.7.0.
inline constexpr std::size_t kMaxMuxPayload = std::size_t{16} << 20;

// Consecutive bytes of one logical connection, at most one frame's.
struct MuxPiece {
  std::uint32_t connection = 0;
  std::string_view bytes = {};
  friend bool operator==(const MuxPiece&, const MuxPiece&) = default;
};

// Takes the socket's bytes apart, however they were split by read(). Keeps at most a header.
class MuxDecoder {
 public:
  // The next piece, which is part of input and removed from its front. nullopt: all of input is used. Errors: a
  // connection that NRI does not have, a frame longer than any runtime sends. The stream is lost then: every further
  // call with input fails in the same way.
  Result<std::optional<MuxPiece>> next(std::string_view& input);

  // False in the middle of a frame.
  bool between_frames() const { return header_.size == 0 && left_ == 0; }

 private:
  Result<void> begin_frame();

  PartialHeader<kMuxHeaderSize> header_;
  std::uint32_t connection_ = 0;
  std::size_t left_ = 0;  // of the frame's payload
};

// Appends the header of a frame; the caller appends the payload. length: 1 to kMaxMuxPayload.
void append_mux_header(std::string& out, std::uint32_t connection, std::size_t length);

enum class MessageType : std::uint8_t { kRequest = 1, kResponse = 2, kData = 3 };

inline constexpr std::uint8_t kFlagRemoteOpen = 0x2;  // a stream: more messages follow

inline constexpr std::size_t kMessageHeaderSize = 10;
// What Go's receivers accept (ttrpc channel.go messageLengthMax).
inline constexpr std::size_t kMaxSendData = std::size_t{4} << 20;
// ttrpc before 1.2.6, which is part of containerd 1.7, sends more than it accepts: a plugin that refuses those messages
// loses a large node's Synchronize. Its multiplexer frames end at this size.
inline constexpr std::size_t kMaxReceiveData = std::size_t{16} << 20;

struct Message {
  std::uint32_t stream = 0;
  MessageType type = MessageType::kRequest;
  std::uint8_t flags = 0;
  std::uint32_t length = 0;    // as announced
  std::string_view data = {};  // empty when too_long
  bool too_long = false;       // its data did not fit and was skipped
  friend bool operator==(const Message&, const Message&) = default;
};

// Takes the bytes of one logical connection apart, however they are split.
class MessageDecoder {
 public:
  // buffer: where messages that arrive in several parts are put together. Longer ones are skipped (Message::too_long).
  explicit MessageDecoder(std::span<char> buffer) : buffer_(buffer) {}

  // The next message; its bytes are removed from the front of input. Its data is part of input or of the buffer and
  // lives until the next call. nullopt: all of input is used and no message is complete. Errors: a type that ttrpc does
  // not have; every further call fails in the same way.
  Result<std::optional<Message>> next(std::string_view& input);

  // False in the middle of a message.
  bool between_messages() const { return header_.size == 0; }
  // How much of the buffer the message that was returned last, or is being read, has used.
  std::size_t buffer_used() const { return got_; }

 private:
  bool take_data(std::string_view& input);

  std::span<char> buffer_;
  PartialHeader<kMessageHeaderSize> header_;
  Message current_;
  std::size_t got_ = 0;      // bytes of the data in the buffer
  std::size_t skipped_ = 0;  // bytes of the data dropped, when it is too long
};

void append_message_header(std::string& out, const Message& message);

// Appends a message as multiplexer frames that every version's reader takes: it reads through a buffer of 4096 bytes
// and fails on a frame that is longer than the space it offers (multiplex conn.Read: ENOMEM). Short messages are one
// frame; others have their header in a frame of its own, after which the reader offers the data's length.
// message.length is ignored; data: at most kMaxSendData bytes.
void append_frames(std::string& out, std::uint32_t connection, Message message);

}  // namespace shim
