#include "shim/nri/worker.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>

#include "base/file.hpp"
#include "base/json/error.hpp"
#include "base/process/helper.hpp"
#include "base/process/sandbox.hpp"
#include "shim/ttrpc/frames.hpp"

namespace shim {
namespace {

using Clock = Worker::Clock;

constexpr std::size_t kLargestRequest = std::size_t{16} << 20;
constexpr std::size_t kLargestAnswer = std::size_t{4} << 20;
// Each request and answer starts with a length of this size: the number of bytes that follow.
constexpr std::size_t kHeader = 4;
// First byte of an answer.
constexpr char kDone = '+';
constexpr char kFailed = '-';
// Longest wait for the end of a process.
constexpr int kEndMs = 50;

// Returns false if the plugin has closed the socket.
bool read_request(int fd, std::string& request) {
  char header[kHeader];
  if (base::read_bytes(fd, header, sizeof header) != ssize_t{sizeof header}) return false;
  request.resize(std::min<std::size_t>(read_u32({header, sizeof header}), kLargestRequest));
  return base::read_bytes(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size());
}

std::string framed(std::string_view text) {
  std::string message;
  message.reserve(kHeader + text.size());
  append_u32(message, static_cast<std::uint32_t>(text.size()));
  message += text;
  return message;
}

Worker::Answer answer_of(const Worker::Serve& serve, std::string_view request) {
  try {
    return serve(request);
  } catch (const std::exception& error) {  // bad_alloc: the program itself does not throw
    return {Error{error.what(), ENOMEM, {}}};
  }
}

// Waits until poll(2) reports one of the events for fd. Returns false at the deadline.
Result<bool> wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{fd, events, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(std::min<long>(left, 60'000))) : 0;
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait for the worker");
    if (Clock::now() >= deadline) return false;
  }
}

Error too_late() {
  return {"rdma-nri's worker did not finish within the runtime's request timeout", ETIMEDOUT,
          "try again; check the load of the node"};
}

Error ended() {
  return {"rdma-nri's worker ended without an answer", EIO, "read the log of rdma-nri"};
}

}  // namespace

// Runs in the new process. The socket becomes standard input, because isolate() keeps only descriptors 0 to 2.
void Worker::be_worker(int socket) const {
  if (::dup2(socket, STDIN_FILENO) < 0) ::_exit(1);
  const auto isolated = base::isolate();
  const auto begun = isolated ? begin_() : Result<Serve>(isolated.error());
  const Serve serve = begun ? *begun : [&](std::string_view) { return Answer{begun.error()}; };
  std::string request;
  while (read_request(STDIN_FILENO, request)) {
    const Answer answer = answer_of(serve, request);
    if (!answer.result) {
      // afterwards() comes first after an error, because the plugin kills this process as soon as it has the error.
      if (answer.afterwards) answer.afterwards();
      (void)base::write_all(STDIN_FILENO, framed(kFailed + base::error_text(answer.result.error())));
      break;
    }
    if (base::write_all(STDIN_FILENO, framed(kDone + *answer.result)) != 0) break;
    if (answer.afterwards) answer.afterwards();
  }
  // _exit(2) runs no exit handlers: this process inherited the plugin's handlers, which must run in the plugin only.
  ::_exit(0);
}

Result<void> Worker::start() {
  reap();
  if (pid_ != 0) return {};
  auto [pid, socket] =
      base::start_helper(SOCK_STREAM, [&](pid_t, const UniqueFd&, const UniqueFd& theirs) { be_worker(theirs.get()); });
  if (!socket.ok()) return sys_error(errno, "cannot make a socket");
  if (pid < 0) return sys_error(errno, "cannot start a process");
  pid_ = pid;
  socket_ = std::move(socket);
  return {};
}

Worker::~Worker() {
  socket_.reset();  // the process ends when it reads the end of the stream
  for (int waited = 0; pid_ != 0 && waited < kEndMs; ++waited) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = 0;
    if (pid_ != 0) (void)::poll(nullptr, 0, 1);
  }
  retire();
}

void Worker::retire() {
  if (pid_ == 0) return;
  socket_.reset();
  ::kill(pid_, SIGKILL);
  ending_.push_back(std::exchange(pid_, 0));
  // A killed process usually ends within this short wait, so that no zombie is left.
  for (int waited = 0; reap(), !ending_.empty() && waited < kEndMs; ++waited)
    (void)::poll(nullptr, 0, 1);
}

void Worker::reap() {
  std::erase_if(ending_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

// Sends length and request together, because two writes would wake the worker twice.
Result<void> Worker::send(std::string_view request, Clock::time_point deadline) {
  const std::string message = framed(request);
  for (std::string_view left = message; !left.empty();) {
    const ssize_t count = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
    if (count >= 0 || errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return ended();
    if (errno != EAGAIN) return sys_error(errno, "cannot send to the worker");
    if (!TRY(wait_for(socket_.get(), POLLOUT, deadline))) return too_late();
  }
  return {};
}

Result<std::string> Worker::exchange(std::string_view request, Clock::time_point deadline) {
  TRY_VOID(send(request, deadline));
  std::string text;
  char buffer[16384];
  for (;;) {
    if (!TRY(wait_for(socket_.get(), POLLIN, deadline))) return too_late();
    const ssize_t count = ::read(socket_.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return ended();
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() < kHeader) continue;
    const std::size_t size = read_u32(text);
    // The worker parses untrusted input, so its answer is checked like untrusted input.
    if (size == 0 || size > kLargestAnswer + 1) return Error{"the worker's answer is empty or too long", EMSGSIZE, {}};
    if (text.size() < kHeader + size) continue;
    text.erase(0, kHeader);
    return text;
  }
}

Result<std::string> Worker::ask(std::string_view request, Clock::time_point deadline) {
  if (request.size() > kLargestRequest) return Error{"the request is too long", EMSGSIZE, {}};
  // A readable socket means that the worker has ended, for example was killed. It has not received this request, so a
  // new worker can serve it.
  pollfd ended_before{socket_.get(), POLLIN, 0};
  if (pid_ != 0 && ::poll(&ended_before, 1, 0) > 0) retire();
  TRY_VOID(start());
  auto text = exchange(request, deadline);
  if (text && text->front() == kDone) {
    text->erase(0, 1);
    return text;
  }
  retire();
  if (!text) return text;
  return base::parse_error(std::string_view(*text).substr(1))
      .value_or(Error{"cannot parse the answer of rdma-nri's worker", EIO});
}

}  // namespace shim
