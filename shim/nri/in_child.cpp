#include "shim/nri/in_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "fabric/unique_fd.hpp"
#include "hook/json/json.hpp"
#include "hook/json/json_members.hpp"
#include "hook/process/sandbox.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;
using hook::Json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestAnswer = std::size_t{4} << 20;
// First byte of an answer.
constexpr char kDone = '+';
constexpr char kFailed = '-';

std::string error_text(const Error& error) {
  const Json json{{"message", error.message}, {"code", error.code}, {"hint", error.hint}};
  return kFailed + json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Error parse_error(std::string_view text) {
  const auto json = hook::parse_json(text, "the child's answer");
  const auto message = json ? hook::text_at(*json, "message") : Result<std::string>(Error{});
  if (!message) return {"a child process of rdma-nri gave no answer that could be read", EIO, {}};
  Error error{*message, 0, {}};
  if (auto hint = hook::text_at(*json, "hint")) error.hint = std::move(hint).value();
  if (const Json* code = hook::member(*json, "code"); code && code->is_number_integer()) error.code = code->get<int>();
  return error;
}

std::string answer_of(const std::function<Result<std::string>()>& work) {
  try {
    auto done = work();
    return done ? kDone + *done : error_text(done.error());
  } catch (const std::exception& error) {  // bad_alloc: nothing else is thrown on purpose
    return error_text({error.what(), ENOMEM, {}});
  }
}

// The answer goes to standard output, the one descriptor besides 0 and 2 that isolate() leaves.
[[noreturn]] void be_child(pid_t parent, int answer, const std::function<Result<std::string>()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::dup2(answer, STDOUT_FILENO) < 0) ::_exit(1);
  const auto isolated = hook::isolate();
  const std::string text = isolated ? answer_of(work) : error_text(isolated.error());
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);
    at += static_cast<std::size_t>(written);
  }
  ::_exit(0);
}

// Until its end. nullopt: the deadline has come.
Result<std::optional<std::string>> read_answer(int fd, Clock::time_point deadline) {
  std::string text;
  char buffer[16384];
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(std::min<long>(left, 60'000))) : 0;
    if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait for a child process");
    if (ready <= 0) {
      if (Clock::now() >= deadline) return std::optional<std::string>();
      continue;
    }
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return sys_error(errno, "cannot read a child process' answer");
    if (count == 0) return std::optional<std::string>(std::move(text));
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kLargestAnswer + 1) return Error{"a child process' answer is too long", EMSGSIZE, {}};
  }
}

}  // namespace

Result<std::string> run_in_child(const std::function<Result<std::string>()>& work, Clock::time_point deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return sys_error(errno, "cannot make a pipe");
  UniqueFd answer(ends[0]);
  UniqueFd to_parent(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "cannot start a child process");
  if (child == 0) be_child(parent, to_parent.get(), work);
  to_parent.reset();
  const auto text = read_answer(answer.get(), deadline);
  if (!text || !*text) ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!text) return text.error();
  if (!*text)
    return Error{"no time is left: the runtime waits no longer", ETIMEDOUT, "try again; is the node overloaded?"};
  const std::string_view all = **text;
  if (all.empty()) return Error{"a child process of rdma-nri ended without an answer", EIO, "its log may say why"};
  if (all.front() != kDone) return parse_error(all.substr(1));
  return std::string(all.substr(1));
}

}  // namespace shim
