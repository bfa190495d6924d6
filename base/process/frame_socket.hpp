// A stream socket on which processes of one program exchange texts. A frame is a length of 4 bytes, in the byte order
// of the machine, and a text of that length.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "base/unique_fd.hpp"

namespace base {

class FrameSocket {
 public:
  FrameSocket() = default;
  // most: limit of a received text in bytes.
  FrameSocket(UniqueFd socket, std::size_t most) : socket_(std::move(socket)), most_(most) {}

  int fd() const { return socket_.get(); }
  bool ok() const { return socket_.ok(); }
  // A received text stays valid.
  void close() { socket_.reset(); }

  // Both functions wait until the deadline; nullopt: without limit. After an error the socket is of no further use,
  // except after ETIMEDOUT of receive(). receive() with a past deadline returns only a text that an earlier call has
  // read.
  //
  // Sends a text in one call, because two calls would wake the other process twice. Errors: ETIMEDOUT; EPIPE or
  // ECONNRESET, the other process is gone; another errno of send(2).
  Result<void> send(std::string_view text, std::optional<Deadline> deadline = std::nullopt);
  // Receives a text, which is valid until the next call. Errors: ETIMEDOUT; EPIPE or ECONNRESET, the other process is
  // gone; EMSGSIZE, the text is longer than the limit; another errno of recv(2).
  Result<std::string_view> receive(std::optional<Deadline> deadline = std::nullopt);

 private:
  Result<void> wait_for(short events, Deadline deadline) const;

  UniqueFd socket_;
  std::size_t most_ = 0;
  std::string buffer_;
  std::size_t filled_ = 0;  // bytes at the start of buffer_ that were received
  std::size_t taken_ = 0;   // size of the frame at the start of buffer_ that receive() has returned
};

}  // namespace base
