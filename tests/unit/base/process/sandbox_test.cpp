#include "base/process/sandbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "hook/rails/netlink/netlink.hpp"
#include "unit/sanitized.hpp"

namespace hook {
namespace {

// Runs the function in a child. Returns its exit code, or 1000 and the signal.
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

int filtered(const std::function<int()>& function) {
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !restrict_process() ? 250 : function();
}

int after_filter(const std::function<int()>& function) {
  return outcome([&] { return filtered(function); });
}

TEST(Isolate, RemovesInheritedState) {
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
              for (int fd = 0; fd < 3; ++fd)
                if (fcntl(fd, F_GETFD) < 0) return 6;
              rlimit core{1, 1};
              if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0) return 7;
              if (prctl(PR_GET_DUMPABLE) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 8;
              return 0;
            }),
            0);
}

int pair_of(int type) {
  int ends[2];
  return error_of(socketpair(AF_UNIX, type, 0, ends));
}

int getrlimit_of(__rlimit_resource resource) {
  rlimit now{};
  return prlimit(0, resource, nullptr, &now);
}

const int kNotFoundOrNotRoot = geteuid() == 0 ? ENOENT : EPERM;

struct FilterRow {
  const char* name;
  std::function<int()> call;
  int outcome;
};

// Maps executable memory.
int map_executable() {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? errno : 0;
}

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
    {"executable memory", map_executable, EPERM},
    {"a TCP socket", [] { return error_of(socket(AF_INET, SOCK_STREAM, 0)); }, EPERM},
    {"a netlink socket", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)); }, 0},
    {"a netlink socket for features", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC)); }, 0},
    {"a netlink socket of audit", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT)); }, EPERM},
    {"a packet socket", [] { return error_of(socket(AF_PACKET, -1, 0)); }, EINVAL},
    {"a packet socket that receives", [] { return error_of(socket(AF_PACKET, -1, ETH_P_ALL)); }, EPERM},
    {"a local socket", [] { return error_of(socket(AF_UNIX, SOCK_DGRAM, 0)); }, EPERM},
    {"many messages at once", [] { return error_of(recvmmsg(-1, nullptr, 0, 0, nullptr)); }, EBADF},
    {"connect", [] { return error_of(connect(-1, nullptr, 0)); }, EPERM},
    {"a pair of sockets for descriptors", [] { return pair_of(SOCK_SEQPACKET | SOCK_CLOEXEC); }, 0},
    {"a pair of sockets that send to paths", [] { return pair_of(SOCK_DGRAM); }, EPERM},
    {"a character device", [] { return error_of(mknodat(-1, "x", S_IFCHR | 0666, makedev(1, 3))); }, EBADF},
    {"a block device", [] { return error_of(mknodat(-1, "x", S_IFBLK | 0666, makedev(8, 0))); }, EPERM},
    {"a FIFO", [] { return error_of(mknodat(-1, "x", S_IFIFO, 0)); }, EPERM},
    {"a file by mknod", [] { return error_of(mknodat(-1, "x", 0, 0)); }, EPERM},
    {"mount of a device", [] { return error_of(mount("/dev/x", "/none", "ext4", 0, nullptr)); }, EPERM},
    {"bind mount by paths", [] { return error_of(mount("/", "/none", nullptr, MS_BIND, nullptr)); }, EPERM},
    {"remount that writes", [] { return error_of(mount(nullptr, "/none", nullptr, MS_REMOUNT, nullptr)); }, EPERM},
    {"remount that does not",
     [] {
       const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
       return error_of(mount(nullptr, "/proc/none", nullptr, flags, nullptr));
     },
     kNotFoundOrNotRoot},
    {"umount", [] { return error_of(umount2("/proc/none", 0)); }, EPERM},
    {"umount by force", [] { return error_of(umount2("/proc/none", MNT_FORCE)); }, EPERM},
    {"umount of what is in use", [] { return error_of(umount2("/proc/none", MNT_DETACH)); }, kNotFoundOrNotRoot},
    {"a tree of mounts", [] { return error_of(open_tree(-1, "x", OPEN_TREE_CLONE | AT_RECURSIVE)); }, EPERM},
    {"move_mount by paths", [] { return error_of(move_mount(-1, "x", -1, "y", 0)); }, EPERM},
    {"a file system opened again",
     [] { return error_of(syscall(SYS_fsconfig, -1, FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0)); }, EPERM},
    {"a limit", [] { return error_of(getrlimit_of(RLIMIT_MEMLOCK)); }, 0},
    {"a limit of another kind", [] { return error_of(getrlimit_of(RLIMIT_CORE)); }, EPERM},
    {"a file", [] { return error_of(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)); }, 0},
    {"openat2", [] { return error_of(syscall(SYS_openat2, -1, "x", nullptr, 0)); }, EINVAL},
    {"ioctl", [] { return error_of(syscall(SYS_ioctl, 0, 0, 0)); }, EPERM},
    {"ioctl of a namespace", [] { return error_of(syscall(SYS_ioctl, -1, NS_GET_NSTYPE)); }, EBADF},
    {"ioctl that makes a TUN netdev", [] { return error_of(syscall(SYS_ioctl, -1, TUNSETIFF)); }, EBADF},
    {"ioctl that keeps a TUN netdev", [] { return error_of(syscall(SYS_ioctl, -1, TUNSETPERSIST)); }, EPERM},
    {"ioctl of a socket's namespace", [] { return error_of(syscall(SYS_ioctl, -1, SIOCGSKNS)); }, EBADF},
    {"a copy of a descriptor", [] { return error_of(syscall(SYS_pidfd_getfd, -1, 0, 0)); }, EBADF}};

TEST(RestrictProcess, AllowsOnlyCallsOfTheHook) {
  for (const FilterRow& row : kFilterRows)
    EXPECT_EQ(after_filter(row.call), row.outcome) << row.name;
}

// Stages read a netdev's settings there, and restore them.
TEST(RestrictProcess, AllowsSysfsOfANetworkNamespace) {
  for (const SysfsAccess access : {SysfsAccess::kRead, SysfsAccess::kWrite}) {
    const auto opened = [access] {
      const auto sysfs = open_sysfs(access);
      return sysfs && sysfs->ok() ? 0 : errno;
    };
    const int without = opened();
    if (without != 0) GTEST_SKIP() << "no sysfs can be mounted here";
    EXPECT_EQ(after_filter(opened), 0);
  }
}

TEST(RestrictProcess, ChildrenMayExecuteAndConnect) {
  const FilterRow rows[] = {
      {"execve", [] { return error_of(execl("/bin/true", "true", nullptr)); }, 0},
      {"a local socket", [] { return error_of(socket(AF_UNIX, SOCK_DGRAM, 0)); }, 0},
      {"a TCP socket", [] { return error_of(socket(AF_INET, SOCK_STREAM, 0)); }, 0},
      {"ptrace", [] { return error_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }, EPERM},
      {"finit_module", [] { return error_of(syscall(SYS_finit_module, -1, "", 0)); }, EPERM},
      {"io_uring", [] { return error_of(syscall(SYS_io_uring_setup, 0, nullptr)); }, EPERM},
      {"no new privileges", [] { return 1 - prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }, 0},
      {"the worker's filter", [] { return restrict_process() ? error_of(execl("/bin/true", "true", nullptr)) : 250; },
       kKilled}};
  for (const FilterRow& row : rows)
    EXPECT_EQ(outcome([&] { return restrict_with_children() ? row.call() : 250; }), row.outcome) << row.name;
}

// Calls that the other filters forbid too.
const FilterRow kForbiddenRows[] = {
    {"execve", [] { return error_of(execl("/bin/true", "true", nullptr)); }, kKilled},
    {"io_uring", [] { return error_of(syscall(SYS_io_uring_setup, 0, nullptr)); }, kKilled},
    {"ptrace", [] { return error_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }, kKilled},
    {"unshare", [] { return error_of(unshare(CLONE_NEWUSER)); }, kKilled},
    {"setuid", [] { return error_of(syscall(SYS_setuid, 0)); }, kKilled},
    {"a TCP socket", [] { return error_of(socket(AF_INET, SOCK_STREAM, 0)); }, EPERM},
    {"a local socket", [] { return error_of(socket(AF_UNIX, SOCK_DGRAM, 0)); }, EPERM},
    {"a packet socket", [] { return error_of(socket(AF_PACKET, -1, 0)); }, EPERM},
    {"connect", [] { return error_of(connect(-1, nullptr, 0)); }, EPERM},
    {"fsopen", [] { return error_of(syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC)); }, EPERM},
    {"mount", [] { return error_of(mount("/", "/none", nullptr, MS_BIND, nullptr)); }, EPERM},
    {"setns", [] { return error_of(setns(-1, CLONE_NEWNS)); }, EPERM},
    {"bpf", [] { return error_of(syscall(SYS_bpf, 0, nullptr, 0)); }, EPERM},
    {"a character device", [] { return error_of(mknodat(-1, "x", S_IFCHR | 0666, makedev(1, 3))); }, EPERM},
    {"fork", [] { return error_of(fork()); }, EPERM},
    {"executable memory", map_executable, EPERM}};

TEST(RestrictProcess, ConfigReadsAndReplacesFilesOnly) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizers' run-time library makes calls that this filter forbids";
  const auto restricted = [](const FilterRow& row) {
    return outcome([&] { return restrict_to_config() ? row.call() : 250; });
  };
  for (const FilterRow& row : kForbiddenRows)
    EXPECT_EQ(restricted(row), row.outcome) << row.name;
  const FilterRow rows[] = {
      {"a file", [] { return error_of(open("/proc/self/stat", O_RDONLY | O_CLOEXEC)); }, 0},
      {"a netlink socket", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)); }, 0},
      {"a netlink socket of audit", [] { return error_of(socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT)); }, EPERM},
      {"rename", [] { return error_of(rename("/proc/none", "/proc/none2")); }, ENOENT},
      {"a pipe", [] { return error_of(syscall(SYS_pipe2, nullptr, 0)); }, EPERM}};
  for (const FilterRow& row : rows)
    EXPECT_EQ(restricted(row), row.outcome) << row.name;
}

TEST(RestrictProcess, ServerMayOnlyServe) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizers' run-time library makes calls that this filter forbids";
  const auto restricted = [](const std::function<int()>& call) {
    return outcome([&] { return restrict_to_serving() ? call() : 250; });
  };
  for (const FilterRow& row : kForbiddenRows)
    EXPECT_EQ(restricted(row.call), kKilled) << row.name;
  EXPECT_EQ(restricted([] { return error_of(open("/", O_RDONLY | O_CLOEXEC)); }), kKilled);
  EXPECT_EQ(restricted([] { return error_of(write(1, "", 0)); }), kKilled);
  EXPECT_EQ(restricted([] { return error_of(kill(0, 0)); }), kKilled);
  EXPECT_EQ(restricted([] { return error_of(dup(0)); }), kKilled);
  EXPECT_EQ(restricted([] { return error_of(sendto(-1, "", 0, 0, reinterpret_cast<sockaddr*>(1), 1)); }), kKilled);
  EXPECT_EQ(restricted([] { return error_of(send(-1, "", 0, MSG_NOSIGNAL)); }), EBADF);
  EXPECT_EQ(restricted([] { return error_of(recv(-1, nullptr, 0, 0)); }), EBADF);
  EXPECT_EQ(restricted([] { return error_of(accept4(-1, nullptr, nullptr, SOCK_CLOEXEC)); }), EBADF);
}

constexpr const char* kSets[] = {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:"};

// Reads /proc/self/status, because the filter forbids capget(2).
std::uint64_t capabilities(std::string_view set) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(set)) return std::stoull(line.substr(set.size()), nullptr, 16);
  return UINT64_MAX;
}

constexpr std::uint64_t bit(int capability) {
  return std::uint64_t{1} << capability;
}

constexpr std::uint64_t kKept = bit(CAP_SYS_ADMIN) | bit(CAP_SYS_CHROOT) | bit(CAP_SYS_PTRACE) | bit(CAP_SYS_RESOURCE) |
                                bit(CAP_SYSLOG) | bit(CAP_NET_ADMIN) | bit(CAP_NET_RAW) | bit(CAP_MKNOD) |
                                bit(CAP_CHOWN) | bit(CAP_DAC_OVERRIDE) | bit(CAP_SETUID) | bit(CAP_SETGID);

// Returns the number of the first set that is wrong after the filter, for a process with these capabilities; 0: none.
int wrong_set(std::uint64_t permitted) {
  for (int set = 0; set < 4; ++set) {
    const bool kept = set == 1 || set == 2;
    if (capabilities(kSets[set]) != (kept ? permitted & kKept : 0)) return set + 1;
  }
  return 0;
}

int set_capabilities(std::uint64_t permitted) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  for (const int word : {0, 1})
    data[word].effective = data[word].permitted = static_cast<std::uint32_t>(permitted >> (32 * word));
  return static_cast<int>(syscall(SYS_capset, &header, data));
}

TEST(RestrictProcess, KeepsOnlyCapabilitiesOfSteps) {
  const std::uint64_t all = capabilities("CapPrm:");
  EXPECT_EQ(after_filter([&] { return wrong_set(all); }), 0) << std::hex << all;
  for (const std::uint64_t few : {std::uint64_t{0}, all & bit(CAP_KILL), all & (bit(CAP_KILL) | bit(CAP_CHOWN)),
                                  all & ~bit(CAP_SYSLOG), all & ~bit(CAP_KILL)}) {
    EXPECT_EQ(outcome([&] { return set_capabilities(few) != 0 ? 249 : filtered([&] { return wrong_set(few); }); }), 0)
        << std::hex << few;
  }
}

TEST(RestrictProcess, WorksInAUserNamespace) {
  const int ended = outcome([] {
    if (unshare(CLONE_NEWUSER) != 0) return 77;
    const std::uint64_t all = capabilities("CapPrm:");
    return filtered([&] { return wrong_set(all); });
  });
  if (ended == 77) GTEST_SKIP() << "this machine makes no user namespace";
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace hook
