// NRI's multiplexer (containerd/nri pkg/net/multiplex): two logical connections over one socket. A frame is the id of
// a connection and the length of its payload, both 32 bits, big-endian, then the payload. Nothing opens or closes a
// logical connection. Each of them is a stream of bytes: what it carries may begin and end anywhere in a frame.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"

namespace shim {

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
  fabric::Result<std::optional<MuxPiece>> next(std::string_view& input);

  // False in the middle of a frame.
  bool between_frames() const { return header_size_ == 0 && left_ == 0; }

 private:
  fabric::Result<void> begin_frame();

  std::array<char, kMuxHeaderSize> header_{};
  std::size_t header_size_ = 0;
  std::uint32_t connection_ = 0;
  std::size_t left_ = 0;  // of the frame's payload
};

// Appends the header of a frame; the caller appends the payload. length: 1 to kMaxMuxPayload.
void append_mux_header(std::string& out, std::uint32_t connection, std::size_t length);

}  // namespace shim
