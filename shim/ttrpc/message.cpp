#include "shim/ttrpc/message.hpp"

#include <algorithm>

#include "shim/ttrpc/big_endian.hpp"
#include "shim/ttrpc/mux.hpp"

namespace shim {
namespace {

using fabric::make_error;
using fabric::Result;

// Size of the bufio.Reader in Go's ttrpc channel.
constexpr std::size_t kReaderBuffer = 4096;

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(MessageType::kRequest) &&
         type <= static_cast<std::uint8_t>(MessageType::kData);
}

}  // namespace

Result<std::optional<Message>> MessageDecoder::next(std::string_view& input) {
  if (header_size_ == 0) got_ = skipped_ = 0;
  if (!take_header(input)) return std::optional<Message>();
  const auto type = static_cast<std::uint8_t>(header_[8]);
  if (!is_known(type)) return make_error("ttrpc message of type {}: there are types 1 to 3 only", type);
  const std::string_view header(header_.data(), header_.size());
  current_ = {.stream = read_u32(header.substr(4)),
              .type = static_cast<MessageType>(type),
              .flags = static_cast<std::uint8_t>(header_[9]),
              .length = read_u32(header),
              .data = {},
              .too_long = false};
  current_.too_long = current_.length > buffer_.size();
  if (!take_data(input)) return std::optional<Message>();
  header_size_ = 0;
  return std::optional(current_);
}

// Whether the header is complete.
bool MessageDecoder::take_header(std::string_view& input) {
  const std::size_t taken = std::min(header_.size() - header_size_, input.size());
  std::copy_n(input.begin(), taken, header_.begin() + static_cast<std::ptrdiff_t>(header_size_));
  header_size_ += taken;
  input.remove_prefix(taken);
  return header_size_ == header_.size();
}

// Whether the data is complete, or skipped to its end.
bool MessageDecoder::take_data(std::string_view& input) {
  std::size_t& done = current_.too_long ? skipped_ : got_;
  const std::string_view part = input.substr(0, current_.length - done);
  input.remove_prefix(part.size());
  if (!current_.too_long && part.size() == current_.length) {  // at once: no copy
    current_.data = part;
    return true;
  }
  if (!current_.too_long) std::copy(part.begin(), part.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(got_));
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
