#include "base/process/frame_socket.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace base {
namespace {

constexpr std::size_t kHeader = sizeof(std::uint32_t);
constexpr std::size_t kSmallestBuffer = 16384;

}  // namespace

// Waits until poll(2) reports one of the events.
Result<void> FrameSocket::wait_for(short events, Deadline deadline) const {
  constexpr std::int64_t kLongestWaitMs = 60'000;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{fd(), events, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, kLongestWaitMs))) : 0;
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait");
    if (std::chrono::steady_clock::now() >= deadline) return sys_error(ETIMEDOUT, "no answer");
  }
}

Result<void> FrameSocket::send(std::string_view text, std::optional<Deadline> deadline) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame;
  frame.reserve(kHeader + text.size());
  frame.append(reinterpret_cast<const char*>(&size), kHeader).append(text);
  for (std::string_view rest = frame; !rest.empty();) {
    const ssize_t count = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL | (deadline ? MSG_DONTWAIT : 0));
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN && deadline) {
      TRY_VOID(wait_for(POLLOUT, *deadline));
    } else if (errno != EINTR) {
      return sys_error(errno, "cannot send");
    }
  }
  return {};
}

Result<std::string_view> FrameSocket::receive(std::optional<Deadline> deadline) {
  filled_ -= taken_;
  std::memmove(buffer_.data(), buffer_.data() + taken_, filled_);
  taken_ = 0;
  for (;;) {
    std::uint32_t size = 0;
    if (filled_ >= kHeader) std::memcpy(&size, buffer_.data(), kHeader);
    if (size > most_)
      return Error{fmt::format("it sent a message of {} bytes, which is above the limit", size), EMSGSIZE};
    const std::size_t whole = kHeader + size;
    if (filled_ >= whole) {
      taken_ = whole;
      return std::string_view(buffer_).substr(kHeader, size);
    }
    if (deadline) TRY_VOID(wait_for(POLLIN, *deadline));
    if (buffer_.size() < whole) buffer_.resize(std::max(whole, kSmallestBuffer));
    const ssize_t count = ::recv(fd(), buffer_.data() + filled_, buffer_.size() - filled_, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return sys_error(count < 0 ? errno : EPIPE, "no answer");
    filled_ += static_cast<std::size_t>(count);
  }
}

}  // namespace base
