#include "shim/nri/worker.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/json/error.hpp"
#include "base/process/helper.hpp"
#include "base/process/sandbox.hpp"

namespace shim {
namespace {

using Clock = Worker::Clock;

constexpr std::size_t kLargestRequest = std::size_t{16} << 20;
constexpr std::size_t kLargestAnswer = std::size_t{4} << 20;
// The first byte of an answer: whether the job succeeded.
constexpr char kDone = '+';
constexpr char kFailed = '-';
// Longest wait for the end of a process.
constexpr int kEndMs = 50;

Worker::Answer answer_of(const Worker::Serve& serve, std::string_view request) {
  try {
    return serve(request);
  } catch (const std::exception&) {  // bad_alloc: the program itself does not throw
    return {base::error_of_exception()};
  }
}

Error too_late() {
  return {"rdma-nri's worker did not finish within the runtime's request timeout", ETIMEDOUT,
          "try again; check the load of the node"};
}

Error ended() {
  return {"rdma-nri's worker ended without an answer", EIO, "read the log of rdma-nri"};
}

// Sends a request and returns the answer with its first byte.
Result<std::string_view> exchange(FrameSocket& socket, std::string_view request, Clock::time_point deadline) {
  if (auto sent = socket.send(request, deadline); !sent) {
    const int code = sent.error().code;
    if (code == ETIMEDOUT) return too_late();
    if (code == EPIPE || code == ECONNRESET) return ended();
    return sys_error(code, "cannot send to the worker");
  }
  const auto text = socket.receive(deadline);
  // The worker handles texts of untrusted input, so its answer is checked like untrusted input.
  if (text ? text->empty() : text.error().code == EMSGSIZE)
    return Error{"the worker's answer is empty or too long", EMSGSIZE};
  if (text) return text;
  return text.error().code == ETIMEDOUT ? too_late() : ended();
}

}  // namespace

// Runs in the new process. The socket becomes standard input, because isolate() keeps only descriptors 0 to 2.
void Worker::be_worker(int socket) const {
  if (::dup2(socket, STDIN_FILENO) < 0) ::_exit(1);
  const auto isolated = base::isolate();
  const auto begun = isolated ? begin_() : Result<Serve>(isolated.error());
  const Serve serve = begun ? *begun : [&](std::string_view) { return Answer{begun.error()}; };
  FrameSocket frames(UniqueFd(STDIN_FILENO), kLargestRequest);
  while (const auto request = frames.receive()) {
    const Answer answer = answer_of(serve, *request);
    if (!answer.result) {
      // afterwards() comes first after an error, because the plugin kills this process as soon as it has the error.
      if (answer.afterwards) answer.afterwards();
      static_cast<void>(frames.send(kFailed + base::error_text(answer.result.error())).has_value());
      break;
    }
    if (!frames.send(kDone + *answer.result)) break;
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
  socket_ = {std::move(socket), kLargestAnswer + 1};
  return {};
}

Worker::~Worker() {
  socket_.close();  // the process ends when it reads the end of the stream
  for (int waited = 0; pid_ != 0 && waited < kEndMs; ++waited) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = 0;
    if (pid_ != 0) (void)::poll(nullptr, 0, 1);
  }
  retire();
}

void Worker::retire() {
  if (pid_ == 0) return;
  socket_.close();
  ::kill(pid_, SIGKILL);
  ending_.push_back(std::exchange(pid_, 0));
  // A killed process usually ends within this short wait, so that no zombie is left.
  for (int waited = 0; reap(), !ending_.empty() && waited < kEndMs; ++waited)
    (void)::poll(nullptr, 0, 1);
}

void Worker::reap() {
  std::erase_if(ending_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<std::string> Worker::ask(std::string_view request, Clock::time_point deadline) {
  if (request.size() > kLargestRequest) return Error{"the request is too long", EMSGSIZE, {}};
  // A readable socket means that the worker has ended, for example was killed. The ended worker has not received this
  // request, so a new one can serve it.
  pollfd ended_before{socket_.fd(), POLLIN, 0};
  if (pid_ != 0 && ::poll(&ended_before, 1, 0) > 0) retire();
  TRY_VOID(start());
  const auto text = exchange(socket_, request, deadline);
  if (text && text->front() == kDone) return std::string(text->substr(1));
  retire();
  if (!text) return text.error();
  return base::parse_error(text->substr(1)).value_or(Error{"cannot parse the answer of rdma-nri's worker", EIO});
}

}  // namespace shim
