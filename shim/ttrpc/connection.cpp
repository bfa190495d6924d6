#include "shim/ttrpc/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "fabric/text.hpp"

namespace shim {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

namespace {

// For poll(): -1 without a deadline, rounded up so that it is past afterwards.
int milliseconds_until(std::optional<Connection::Clock::time_point> until) {
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Connection::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

Error ended_error() {
  return Error{"the runtime closed the connection", ECONNRESET};
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(UniqueFd socket, Handler handler) {
  ReservedBuffer plugin = TRY(ReservedBuffer::reserve(kMaxReceiveData));
  ReservedBuffer runtime = TRY(ReservedBuffer::reserve(kMaxReceiveData));
  return std::unique_ptr<Connection>(
      new Connection(std::move(socket), std::move(handler), std::move(plugin), std::move(runtime)));
}

Result<void> Connection::check_usable() const {
  if (handling_) return Error{"a request's handler must not use the connection", EDEADLK};
  if (lost_) return *lost_;
  return {};
}

Result<std::string> Connection::call(std::string_view service, std::string_view method, std::string_view payload,
                                     std::chrono::milliseconds timeout) {
  TRY_VOID(check_usable());
  const auto until = Clock::now() + timeout;
  const std::string name = fmt::format("call `{}.{}`", service, method);
  data_.clear();
  append_request(data_, {service, method, payload, std::chrono::nanoseconds(timeout).count()});
  if (data_.size() > kMaxSendData)
    return Error{fmt::format("{}: {} bytes, the limit is {}", name, data_.size(), kMaxSendData), EMSGSIZE};
  pending_ = PendingCall{.stream = next_call_, .answer = std::nullopt};
  next_call_ += 2;
  if (auto sent = send_message(kRuntimeConnection, MessageType::kRequest, pending_->stream); !sent) {
    pending_.reset();
    lost_ = sent.error();
    return wrap(std::move(sent).error(), name);
  }
  while (!pending_->answer) {
    auto ended = round(-1, until);
    if (pending_->answer || (ended && !*ended)) continue;
    pending_.reset();
    if (!ended) return wrap(std::move(ended).error(), name);
    if (**ended == Ended::kPeer) return wrap(ended_error(), name);
    return Error{fmt::format("{}: no answer within {} ms", name, timeout.count()), ETIMEDOUT};
  }
  auto answer = *std::move(pending_->answer);
  pending_.reset();
  if (!answer) return wrap(std::move(answer).error(), name);
  return answer;
}

Result<Connection::Ended> Connection::serve(int stop_fd, std::optional<Clock::time_point> until) {
  TRY_VOID(check_usable());
  for (;;) {
    if (const auto ended = TRY(round(stop_fd, until))) return *ended;
  }
}

// Waits once and does what has come. nullopt: go on.
Result<std::optional<Connection::Ended>> Connection::round(int stop_fd, std::optional<Clock::time_point> until) {
  using Answer = std::optional<Ended>;
  if (lost_) return *lost_;
  if (closed_) return Answer(Ended::kPeer);
  pollfd watched[] = {{socket_.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};  // poll() skips -1
  const int ready = ::poll(watched, std::size(watched), milliseconds_until(until));
  if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait for the runtime");
  if (ready > 0 && watched[1].revents != 0) return Answer(Ended::kStopped);
  if (ready > 0) {
    auto ended = receive();
    if (!ended) lost_ = ended.error();
    if (!ended || *ended) return ended;
  }
  if (until && Clock::now() >= *until) return Answer(Ended::kDeadline);
  return Answer();
}

Result<std::optional<Connection::Ended>> Connection::receive() {
  using Answer = std::optional<Ended>;
  const ssize_t count = ::recv(socket_.get(), input_.data(), input_.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Answer();
  // A Unix socket says ECONNRESET when its peer closed it without reading all.
  if (count == 0 || (count < 0 && errno == ECONNRESET)) return Answer(TRY(end_of_input()));
  if (count < 0) return sys_error(errno, "cannot read from the runtime");
  TRY_VOID(take(std::string_view(input_.data(), static_cast<std::size_t>(count))));
  return Answer();
}

Result<Connection::Ended> Connection::end_of_input() {
  closed_ = true;
  if (!mux_.between_frames() || !requests_.decoder.between_messages() || !answers_.decoder.between_messages())
    return Error{"the runtime closed the connection in the middle of a message", ECONNRESET};
  return Ended::kPeer;
}

// MSG_DONTWAIT and poll() in place of a blocking send, which could not end. A runtime reads all the time; what it does
// not take within this time it never will, its own limit for a request is 2 s.
Result<void> Connection::flush() {
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto until = Clock::now() + kPatience;
  std::string_view left = out_;
  while (!left.empty() && !closed_) {
    const ssize_t count = ::send(socket_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      left.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      closed_ = true;
    } else if (errno == EAGAIN) {
      pollfd watched{socket_.get(), POLLOUT, 0};
      if (Clock::now() >= until)
        return Error{fmt::format("the runtime has not read for {} s", kPatience.count()), ETIMEDOUT};
      ::poll(&watched, 1, milliseconds_until(until));
    } else if (errno != EINTR) {
      return sys_error(errno, "cannot send to the runtime");
    }
  }
  return {};
}

}  // namespace shim
