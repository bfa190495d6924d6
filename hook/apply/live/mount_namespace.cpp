#include "hook/apply/live/mount_namespace.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include "fabric/unique_fd.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

// What the child says, in one write: a pipe keeps that in one piece up to PIPE_BUF bytes.
struct Report {
  int failed = 0;
  int code = 0;
  char message[2000] = {};
  char hint[2000] = {};
};
static_assert(sizeof(Report) <= PIPE_BUF);

template <std::size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  std::memcpy(target, text.data(), std::min(text.size(), N - 1));
}

Result<void> join_and_run(int mount_namespace, const std::function<Result<void>()>& function) {
  if (setns(mount_namespace, CLONE_NEWNS) != 0) {
    fabric::Error error = sys_error(errno, "cannot join the container's mount namespace");
    if (error.code == EPERM) error.hint = "rootless containers get device nodes with --device, or by CDI";
    return error;
  }
  umask(0);  // modes are meant as they are given
  return function();
}

[[noreturn]] void be_the_child(int out, pid_t parent, int mount_namespace,
                               const std::function<Result<void>()>& function) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that was set
  Report report;
  if (auto done = join_and_run(mount_namespace, function); !done) {
    report.failed = 1;
    report.code = done.error().code;
    copy_text(report.message, done.error().message);
    copy_text(report.hint, done.error().hint);
  }
  const bool told = write(out, &report, sizeof report) == static_cast<ssize_t>(sizeof report);
  _exit(told ? 0 : 1);
}

// False: the child ended without a word.
bool read_report(int in, Report& report) {
  ssize_t count = 0;
  do {
    count = read(in, &report, sizeof report);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof report);
}

}  // namespace

Result<void> run_in_mount_namespace(int mount_namespace, const std::function<Result<void>()>& function) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return sys_error(errno, "cannot make a pipe");
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return sys_error(errno, "cannot fork");
  if (child == 0) be_the_child(out.get(), parent, mount_namespace, function);
  out.reset();
  Report report;
  const bool told = read_report(in.get(), report);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!told) {
    return fabric::make_error("cannot work in the container's mount namespace: the child ended with wait status {}",
                              status);
  }
  if (report.failed == 0) return {};
  return fabric::Error{report.message, report.code, report.hint};
}

}  // namespace hook
