#include "shim/ttrpc/mux.hpp"

#include <algorithm>

#include "shim/ttrpc/big_endian.hpp"

namespace shim {

using fabric::make_error;
using fabric::Result;

Result<std::optional<MuxPiece>> MuxDecoder::next(std::string_view& input) {
  while (!input.empty()) {
    if (left_ == 0) {
      const std::size_t taken = std::min(header_.size() - header_size_, input.size());
      std::copy_n(input.begin(), taken, header_.begin() + static_cast<std::ptrdiff_t>(header_size_));
      header_size_ += taken;
      input.remove_prefix(taken);
      if (header_size_ < header_.size()) return std::optional<MuxPiece>();
      TRY_VOID(begin_frame());
      continue;  // an empty frame carries nothing
    }
    const MuxPiece piece{connection_, input.substr(0, left_)};
    left_ -= piece.bytes.size();
    input.remove_prefix(piece.bytes.size());
    return std::optional(piece);
  }
  return std::optional<MuxPiece>();
}

// Leaves a header that is refused where it is.
Result<void> MuxDecoder::begin_frame() {
  const std::string_view header(header_.data(), header_.size());
  const std::uint32_t connection = read_u32(header);
  const std::size_t length = read_u32(header.substr(4));
  // Go drops such a frame without a word. No version of NRI sends one: it is a stream that is read from a wrong place.
  if (connection != kPluginConnection && connection != kRuntimeConnection)
    return make_error("multiplexer frame for connection {}: NRI has connections {} and {} only", connection,
                      kPluginConnection, kRuntimeConnection);
  if (length > kMaxMuxPayload)
    return make_error("multiplexer frame of {} bytes on connection {}: the limit is {}", length, connection,
                      kMaxMuxPayload);
  connection_ = connection;
  left_ = length;
  header_size_ = 0;
  return {};
}

void append_mux_header(std::string& out, std::uint32_t connection, std::size_t length) {
  append_u32(out, connection);
  append_u32(out, static_cast<std::uint32_t>(length));
}

}  // namespace shim
