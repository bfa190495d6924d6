#include "hook/base/process/sandbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

namespace hook {
namespace {

// How a child ends that runs this: its exit code, or 1000 and the signal.
int outcome(const std::function<int()>& function) {
  const pid_t child = fork();
  if (child == 0) _exit(function());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

constexpr int kKilled = 1000 + SIGSYS;

int error_of(long result) {
  return result < 0 ? errno : 0;
}

int after_filter(const std::function<int()>& function) {
  return outcome([&] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !restrict_syscalls()) return 250;
    return function();
  });
}

TEST(Isolate, LeavesNothingOfTheCallers) {
  EXPECT_EQ(outcome([] {
              setenv("LD_PRELOAD", "/x.so", 1);
              const int extra = open("/dev/null", O_RDONLY);
              if (extra != 100) dup2(extra, 100);
              close(0);
              if (!isolate()) return 1;
              if (getenv("LD_PRELOAD") || (environ && *environ)) return 2;
              char where[8] = "";
              if (!getcwd(where, sizeof where) || std::string(where) != "/") return 3;
              if (umask(0) != 077) return 4;
              if (fcntl(100, F_GETFD) >= 0 || fcntl(3, F_GETFD) >= 0) return 5;
              for (int fd = 0; fd < 3; ++fd) {
                if (fcntl(fd, F_GETFD) < 0) return 6;
              }
              rlimit core{1, 1};
              if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0) return 7;
              if (prctl(PR_GET_DUMPABLE) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 8;
              return 0;
            }),
            0);
}

struct FilterRow {
  const char* name;
  std::function<int()> call;
  int outcome;
};

const FilterRow kFilterRows[] = {
    {"execve", [] { return error_of(execl("/bin/true", "true", nullptr)); }, kKilled},
    {"execveat", [] { return error_of(syscall(SYS_execveat, -1, "", nullptr, nullptr, 0)); }, kKilled},
    {"ptrace", [] { return error_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }, kKilled},
    {"finit_module", [] { return error_of(syscall(SYS_finit_module, -1, "", 0)); }, kKilled},
    {"kexec_load", [] { return error_of(syscall(SYS_kexec_load, 0, 0, nullptr, 0)); }, kKilled},
    {"unshare", [] { return error_of(unshare(CLONE_NEWUSER)); }, kKilled},
    {"setuid", [] { return error_of(syscall(SYS_setuid, 0)); }, kKilled},
    {"fork", [] { return error_of(fork()); }, 0},
    {"clone into a namespace", [] { return error_of(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0)); }, EPERM},
    {"clone3", [] { return error_of(syscall(SYS_clone3, nullptr, 0)); }, ENOSYS},
    {"setns of a user namespace", [] { return error_of(setns(-1, CLONE_NEWUSER)); }, EPERM},
    {"setns of a mount namespace", [] { return error_of(setns(-1, CLONE_NEWNS)); }, EBADF},
    {"setns of any", [] { return error_of(setns(-1, 0)); }, EPERM},
    {"bpf map", [] { return error_of(syscall(SYS_bpf, 0, nullptr, 0)); }, EPERM},
    {"executable memory",
     [] {
       void* memory = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       return memory == MAP_FAILED ? errno : 0;
     },
     EPERM},
    {"a TCP socket", [] { return error_of(socket(AF_INET, SOCK_STREAM, 0)); }, EPERM},
    {"a netlink socket", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, 0)); }, 0},
    {"a packet socket", [] { return error_of(socket(AF_PACKET, -1, 0)); }, EINVAL},
    {"a local socket", [] { return error_of(socket(AF_UNIX, SOCK_DGRAM, 0)); }, 0},
    {"a file", [] { return error_of(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)); }, 0},
    {"openat2", [] { return error_of(syscall(SYS_openat2, -1, "x", nullptr, 0)); }, EINVAL},
    {"ioctl", [] { return error_of(syscall(SYS_ioctl, 0, 0, 0)); }, EPERM},
    {"ioctl of a namespace", [] { return error_of(syscall(SYS_ioctl, -1, NS_GET_NSTYPE)); }, EBADF},
};

TEST(RestrictSyscalls, AllowsWhatTheHookDoes) {
  for (const FilterRow& row : kFilterRows) {
    EXPECT_EQ(after_filter(row.call), row.outcome) << row.name;
  }
}

}  // namespace
}  // namespace hook
