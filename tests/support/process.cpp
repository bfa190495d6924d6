#include "support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/unique_fd.hpp"

namespace test_support {
namespace {

using base::UniqueFd;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    std::perror("test set-up: pipe");
    std::abort();
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings)
    pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Reads once. Returns false at the end of the stream.
bool drain(const UniqueFd& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

// Writes once. Returns false if all is written or the reader has closed the pipe.
bool feed(const UniqueFd& fd, const std::string& input, std::size_t& written) {
  const std::size_t chunk = std::min<std::size_t>(input.size() - written, 4096);  // PIPE_BUF: never blocks after poll
  if (chunk == 0) return false;
  const ssize_t count = ::write(fd.get(), input.data() + written, chunk);
  if (count > 0) written += static_cast<std::size_t>(count);
  return count > 0 || (count < 0 && errno == EINTR);
}

// Moves input and outputs until both outputs are closed. Returns false on timeout.
bool exchange(const Command& command, Pipe& in, Pipe& out, Pipe& err, Outcome& outcome) {
  const long end = now_ms() + command.timeout_seconds * 1000L;
  std::size_t written = 0;
  if (command.input.empty()) in.write_end.reset();
  while (out.read_end.ok() || err.read_end.ok()) {
    std::array<pollfd, 3> polled{pollfd{out.read_end.get(), POLLIN, 0}, pollfd{err.read_end.get(), POLLIN, 0},
                                 pollfd{in.write_end.get(), POLLOUT, 0}};
    const long left = end - now_ms();
    if (left <= 0) return false;
    if (::poll(polled.data(), polled.size(), static_cast<int>(left)) < 0 && errno != EINTR) return false;
    if (polled[0].revents != 0 && !drain(out.read_end, outcome.out)) out.read_end.reset();
    if (polled[1].revents != 0 && !drain(err.read_end, outcome.err)) err.read_end.reset();
    if (polled[2].revents != 0 && !feed(in.write_end, command.input, written)) in.write_end.reset();
  }
  return true;
}

}  // namespace

Outcome run(const Command& command) {
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const auto argv = pointers_to(command.argv);
  const auto envp = pointers_to(command.environment);
  signal(SIGPIPE, SIG_IGN);  // the program may not read its input
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(in.read_end.get(), STDIN_FILENO);
    dup2(out.write_end.get(), STDOUT_FILENO);
    dup2(err.write_end.get(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(125);
  }
  in.read_end.reset();
  out.write_end.reset();
  err.write_end.reset();

  Outcome outcome;
  outcome.timed_out = !exchange(command, in, out, err, outcome);
  if (outcome.timed_out) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

}  // namespace test_support
