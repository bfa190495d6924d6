// ttrpc messages (containerd/ttrpc PROTOCOL.md): a header of ten bytes, big-endian: length of the data (32 bits),
// stream (32 bits), type (8), flags (8); then the data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/result.hpp"

namespace shim {

enum class MessageType : std::uint8_t { kRequest = 1, kResponse = 2, kData = 3 };

inline constexpr std::uint8_t kFlagRemoteClosed = 0x1;
inline constexpr std::uint8_t kFlagRemoteOpen = 0x2;  // a stream: more messages follow
inline constexpr std::uint8_t kFlagNoData = 0x4;

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
  fabric::Result<std::optional<Message>> next(std::string_view& input);

  // False in the middle of a message.
  bool between_messages() const { return header_size_ == 0; }
  // How much of the buffer the message that was returned last, or is being read, has used.
  std::size_t buffer_used() const { return got_; }

 private:
  bool take_header(std::string_view& input);
  bool take_data(std::string_view& input);

  std::span<char> buffer_;
  std::array<char, kMessageHeaderSize> header_{};
  std::size_t header_size_ = 0;
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
