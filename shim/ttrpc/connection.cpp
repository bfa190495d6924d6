#include "shim/ttrpc/connection.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/text.hpp"
#include "base/unix_socket.hpp"

namespace shim {
namespace {

// Returns the timeout for poll(2); -1 without a deadline. The timeout is rounded up, so that the deadline has passed
// after it.
int milliseconds_until(std::optional<Connection::Clock::time_point> until) {
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Connection::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// Memory above this size is released after use; most messages are shorter. The size is a multiple of every page size of
// Linux, so that ReservedBuffer can release whole pages.
constexpr std::size_t kUsualSize = std::size_t{64} << 10;

void shrink(std::string& buffer) {
  if (buffer.capacity() > kUsualSize) std::string().swap(buffer);
}

}  // namespace

Result<UniqueFd> connect_socket(const std::string& path) {
  const auto address = base::unix_address(path);
  if (!address)
    return make_error("socket `{}`: expected a path of 1 to {} bytes", base::printable(path), base::kLongestSocketPath);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return sys_error(errno, "cannot make a socket");
  // connect(2) to a Unix socket blocks only while the runtime's backlog is full. If a signal interrupts it, nothing has
  // happened, and the call can be repeated.
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return sys_error(errno, "cannot connect to `{}`", base::printable(path));
  return socket;
}

Result<UniqueFd> launched_socket(std::string_view number) {
  const auto fd = base::parse_number<int>(number);
  // The environment is not trusted: the number may be any descriptor, or none.
  int type = 0;
  socklen_t size = sizeof type;
  if (!fd || *fd < 0 || ::getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return make_error("NRI_PLUGIN_SOCKET=`{}` is not the number of an open stream socket", base::printable(number));
  UniqueFd socket(*fd);
  if (::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0) return sys_error(errno, "cannot set close-on-exec");
  return socket;
}

Result<ReservedBuffer> ReservedBuffer::reserve(std::size_t size) {
  // MAP_NORESERVE is set, because the buffer must not count against the overcommit limit while it is empty.
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return sys_error(errno, "cannot reserve {} bytes for messages", size);
  return ReservedBuffer(std::span(static_cast<char*>(start), size));
}

ReservedBuffer::~ReservedBuffer() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void ReservedBuffer::release(std::size_t used) {
  if (used <= kUsualSize || used > bytes_.size()) return;
  // MADV_DONTNEED frees the pages. A later access gets new pages with zeros.
  ::madvise(bytes_.data() + kUsualSize, used - kUsualSize, MADV_DONTNEED);
}

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
  // A client uses odd stream numbers (ttrpc PROTOCOL.md).
  next_call_ += 2;
  if (auto sent = send_message(kRuntimeConnection, MessageType::kRequest, pending_->stream); !sent) {
    pending_.reset();
    // A part of the message may have been sent, so the runtime would misread any further message. The connection is
    // unusable.
    lost_ = sent.error();
    return wrap(std::move(sent).error(), name);
  }
  // round() also serves requests that the runtime sends before it answers.
  while (!pending_->answer) {
    auto ended = round(-1, until);
    if (pending_->answer || (ended && !*ended)) continue;
    pending_.reset();
    if (!ended) return wrap(std::move(ended).error(), name);
    if (**ended == Ended::kPeer) return wrap(Error{"the runtime closed the connection", ECONNRESET}, name);
    return Error{fmt::format("{}: no answer within {} ms", name, timeout.count()), ETIMEDOUT};
  }
  auto answer = *std::move(pending_->answer);
  pending_.reset();
  if (!answer) return wrap(std::move(answer).error(), name);
  return answer;
}

Result<Connection::Ended> Connection::serve(int stop_fd, std::optional<Clock::time_point> until) {
  TRY_VOID(check_usable());
  for (;;)
    if (const auto ended = TRY(round(stop_fd, until))) return *ended;
}

// Waits once with poll(2) and handles the data that arrived. nullopt: the connection continues, call again.
Result<std::optional<Connection::Ended>> Connection::round(int stop_fd, std::optional<Clock::time_point> until) {
  using Answer = std::optional<Ended>;
  if (lost_) return *lost_;
  if (closed_) return Answer(Ended::kPeer);
  pollfd watched[] = {{socket_.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};  // poll(2) skips -1
  const int ready = ::poll(watched, std::size(watched), milliseconds_until(until));
  if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait for the runtime");
  // stop_fd comes first, because a busy runtime must not delay the end of the plugin.
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
  // recv(2) on a Unix socket fails with ECONNRESET if the peer closed its end before it had read all data.
  if (count == 0 || (count < 0 && errno == ECONNRESET)) return Answer(TRY(end_of_input()));
  if (count < 0) return sys_error(errno, "cannot read from the runtime");
  std::string_view bytes(input_.data(), static_cast<std::size_t>(count));
  while (const auto piece = TRY(mux_.next(bytes)))
    TRY_VOID(take_piece(*piece));
  return Answer();
}

Result<Connection::Ended> Connection::end_of_input() {
  closed_ = true;
  if (!mux_.between_frames() || !requests_.decoder.between_messages() || !answers_.decoder.between_messages())
    return Error{"the runtime closed the connection in the middle of a message", ECONNRESET};
  return Ended::kPeer;
}

// Sends out_. Uses MSG_DONTWAIT and poll(2), because a blocking send could wait forever. A runtime that works reads at
// once. A runtime that has not read for 2 s, its own limit for a request, counts as stuck.
Result<void> Connection::flush() {
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto until = Clock::now() + kPatience;
  std::string_view left = out_;
  // A closed peer is no error here: round() first handles the input that is left and then reports the end.
  while (!left.empty() && !closed_) {
    const ssize_t count = ::send(socket_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      left.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      closed_ = true;
    } else if (errno == EAGAIN) {
      pollfd watched{socket_.get(), POLLOUT, 0};
      if (Clock::now() >= until)
        return Error{fmt::format("the runtime has not read from its socket for {} s", kPatience.count()), ETIMEDOUT};
      ::poll(&watched, 1, milliseconds_until(until));
    } else if (errno != EINTR) {
      return sys_error(errno, "cannot send to the runtime");
    }
  }
  return {};
}

Result<void> Connection::take_piece(const MuxPiece& piece) {
  const bool is_request = piece.connection == kPluginConnection;
  Inbox& inbox = is_request ? requests_ : answers_;
  std::string_view bytes = piece.bytes;
  while (const auto message = TRY(inbox.decoder.next(bytes))) {
    TRY_VOID(is_request ? serve_request(*message) : take_answer(*message));
    inbox.buffer.release(inbox.decoder.buffer_used());
    // The heap keeps the memory that the handler used for a long message, so malloc_trim(3) returns it to the kernel.
    if (message->length > kUsualSize) ::malloc_trim(0);
  }
  return {};
}

Result<void> Connection::serve_request(const Message& message) {
  if (message.type != MessageType::kRequest)
    return make_error("the runtime sent a ttrpc message of type {} in place of a request",
                      static_cast<int>(message.type));
  // An invalid stream number is answered with an error for that stream, as ttrpc's Go server does. The check of the
  // order also prevents that a request is handled twice.
  if (message.stream % 2 == 0)
    return respond(message.stream, Error{"the stream number of a request must be odd", EINVAL});
  if (message.stream <= last_request_)
    return respond(message.stream,
                   Error{"the stream number of a request must be higher than all earlier ones", EINVAL});
  last_request_ = message.stream;
  // handling_ makes check_usable() refuse a call() or serve() of the handler, which would overwrite buffers that are in
  // use.
  handling_ = true;
  auto answer = handle(message);
  handling_ = false;
  return respond(message.stream, answer);
}

Result<std::string> Connection::handle(const Message& message) {
  if (message.too_long)
    return Error{fmt::format("request of {} bytes: the limit is {}", message.length, kMaxReceiveData), EMSGSIZE};
  if ((message.flags & kFlagRemoteOpen) != 0) return Error{"streams are not supported", ENOSYS};
  const auto request = parse_request(message.data);
  if (!request) return Error{request.error().message, EINVAL};
  try {
    return handler_(*request);
  } catch (const std::exception&) {
    // An exception becomes an error that refuses the container. If the plugin crashed instead, the runtime would create
    // the container without its devices.
    return base::wrap(base::error_of_exception(), "cannot serve the request");
  }
}

Result<void> Connection::respond(std::uint32_t stream, const Result<std::string>& answer) {
  data_.clear();
  std::string text;
  Response response;
  if (answer) {
    response.payload = *answer;
  } else {
    text = status_message(answer.error());
    response = {status_of_errno(answer.error().code), text, {}};
  }
  append_response(data_, response);
  if (data_.size() > kMaxSendData)
    return respond(stream,
                   Error{fmt::format("answer of {} bytes: the limit is {}", data_.size(), kMaxSendData), EMSGSIZE});
  return send_message(kPluginConnection, MessageType::kResponse, stream);
}

// Sends a message with the data in data_.
Result<void> Connection::send_message(std::uint32_t connection, MessageType type, std::uint32_t stream) {
  out_.clear();
  append_frames(out_, connection, {.stream = stream, .type = type, .data = data_});
  auto flushed = flush();
  shrink(data_);
  shrink(out_);
  return flushed;
}

Result<void> Connection::take_answer(const Message& message) {
  if (message.type != MessageType::kResponse)
    return make_error("the runtime sent a ttrpc message of type {} in place of an answer",
                      static_cast<int>(message.type));
  // An answer to a stream that the plugin never used ends the connection: the messages are misread.
  if (message.stream % 2 == 0 || message.stream >= next_call_)
    return make_error("the runtime answered ttrpc stream {}, which has no request", message.stream);
  if (!pending_ || pending_->stream != message.stream || pending_->answer) return {};  // drops late answers
  if (message.too_long) {
    pending_->answer.emplace(
        Error{fmt::format("answer of {} bytes: the limit is {}", message.length, kMaxReceiveData), EMSGSIZE});
    return {};
  }
  const Response response = TRY(parse_response(message.data));
  if (response.code == StatusCode::kOk) {
    pending_->answer.emplace(std::string(response.payload));
  } else {
    pending_->answer.emplace(Error{fmt::format("the runtime refused: {} (status {})", base::printable(response.message),
                                               static_cast<int>(response.code)),
                                   errno_of_status(response.code)});
  }
  return {};
}

}  // namespace shim
