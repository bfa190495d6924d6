#include "base/process/query_program.hpp"

#include <fcntl.h>
#include <linux/binfmts.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "base/process/program.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace base {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kCannotEnter = 126;
constexpr int kCannotExecute = 127;
// The interval between two checks whether the child has exited. The interval is used if the kernel has no pidfd_open(2)
// (before Linux 5.3).
constexpr int kLookMs = 50;

// Runs in the child process between fork and exec. outputs: the pipes of its output and of its messages.
[[noreturn]] void become(const std::string& root, const UniqueFd& program, const std::vector<char*>& argv,
                         const std::string& variable, const std::array<Pipe, 2>& outputs) {
  if (!root.empty() && (::chroot(root.c_str()) != 0 || ::chdir("/") != 0)) ::_exit(kCannotEnter);
  ::dup2(outputs[0].out.get(), STDOUT_FILENO);
  ::dup2(outputs[1].out.get(), STDERR_FILENO);
  if (!variable.empty()) ::putenv(const_cast<char*>(variable.c_str()));
  execute_program(program, argv.data(), environ);
  ::_exit(kCannotExecute);
}

// A child process with pipes for its output. If the child has not exited, the destructor kills it and waits for it.
class Child {
 public:
  Child(pid_t pid, std::string name, UniqueFd out, UniqueFd err)
      : pid_(pid), ended_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), name_(std::move(name)) {
    outputs_[0].fd = std::move(out);
    outputs_[1].fd = std::move(err);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Waits until the child exits and returns its wait status. Reads the output meanwhile. Processes that the child
  // started may keep the pipes open; output that they write after the child's exit is not read.
  Result<int> wait(int patience_ms) {
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(patience_ms);
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
      if (left <= 0) return make_error("`{}` does not exit within {} ms", name_, patience_ms);
      wait_for_news(static_cast<int>(left));
      int status = 0;
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended < 0 && errno != EINTR) return sys_error(errno, "wait for `{}`", name_);
      if (ended == pid_) pid_ = -1;
      for (ProgramOutput& output : outputs_)
        if (!read_available(output))
          return Error{fmt::format("`{}` writes more than {} bytes", name_, kMostAnswer), EFBIG};
      if (ended > 0) return status;
    }
  }

  std::string take_out() { return std::move(outputs_[0].text); }
  std::string take_err() { return std::move(outputs_[1].text); }

 private:
  void wait_for_news(int longest_ms) const {
    std::array<pollfd, 3> watched = {
        {{outputs_[0].fd.get(), POLLIN, 0}, {outputs_[1].fd.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), ended_.ok() ? longest_ms : std::min(longest_ms, kLookMs));
  }

  // Reads the output that is available without waiting. Returns false if more than kMostAnswer bytes were read in
  // total.
  static bool read_available(ProgramOutput& output) {
    while (output.fd.ok() && output.read_some(kMostAnswer + 1))
      if (output.text.size() > kMostAnswer) return false;
    return true;
  }

  pid_t pid_;
  UniqueFd ended_;
  std::string name_;
  std::array<ProgramOutput, 2> outputs_;
};

// Returns the interpreter that execve(2) starts for a script; an empty text for a binary. The kernel reads at most
// BINPRM_BUF_SIZE bytes of the first line (include/uapi/linux/binfmts.h).
std::string interpreter_of(const UniqueFd& program) {
  // The file is opened again, because the descriptor of open_program() has O_PATH and cannot be read.
  const UniqueFd file(::open(fmt::format("/proc/self/fd/{}", program.get()).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, BINPRM_BUF_SIZE> start;
  const ssize_t size = file.ok() ? ::read(file.get(), start.data(), start.size()) : 0;
  std::string_view line(start.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (!line.starts_with("#!")) return {};
  line = trim(line.substr(2, line.find('\n') - 2));
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

Result<UniqueFd> open_with_interpreter(const std::string& program, const std::string& root) {
  UniqueFd file = TRY(open_program(program, root));
  const std::string interpreter = interpreter_of(file);
  auto checked = interpreter.empty() ? Result<UniqueFd>(UniqueFd()) : open_program(interpreter, root);
  if (checked) return file;
  return wrap(std::move(checked).error(), fmt::format("its interpreter `{}`", printable(interpreter)));
}

}  // namespace

Result<Answer> query_program(const std::string& root, const std::vector<std::string>& arguments,
                             const std::string& variable, int patience_ms) {
  const std::string name = printable(arguments[0]);
  auto program = open_with_interpreter(arguments[0], root);
  if (!program) return wrap(std::move(program).error(), fmt::format("cannot execute `{}`", name));
  std::array<Pipe, 2> outputs;
  for (Pipe& output : outputs) {
    output = make_pipe();
    if (!output.in.ok()) return sys_error(errno, "make a pipe for the answer of `{}`", name);
  }
  const std::vector<char*> argv = pointers_to(arguments);
  // The program does not die with this process: one that restarts an engine must complete its work.
  const pid_t pid = ::fork();
  if (pid < 0) return sys_error(errno, "start `{}`", name);
  if (pid == 0) become(root, *program, argv, variable, outputs);
  // The parent closes its copies of the writing ends: while one is open, the reading end does not report the end of the
  // output.
  for (Pipe& output : outputs)
    output.out.reset();
  Child child(pid, name, std::move(outputs[0].in), std::move(outputs[1].in));
  const int status = TRY(child.wait(patience_ms));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotEnter)
    return Error{fmt::format("cannot run `{}` in `{}`", name, root), EPERM, "run rdma-hook as root"};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotExecute) return make_error("cannot run `{}`", name);
  Answer answer{status == 0, child.take_out(), child.take_err()};
  if (trim(answer.messages).empty()) answer.messages = answer.text;
  return answer;
}

}  // namespace base
