// Build-time program: writes the seccomp filters of sandbox.cpp as C++ arrays to stdout. The filters are for the
// architecture of the building machine. A call that the architecture lacks gets no rule.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

namespace {

// Calls of glibc and libstdc++, for memory and the process itself, and calls that read and write files.
// clang-format off
constexpr const char* kAlways[] = {
    "brk", "munmap", "mremap", "madvise", "futex", "set_robust_list", "rseq", "set_tid_address", "arch_prctl",
    "getrandom", "sysinfo", "uname", "exit", "exit_group", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sigaltstack", "restart_syscall", "sched_yield", "getpid", "getppid", "gettid", "tgkill", "getuid", "geteuid",
    "getgid", "getegid", "clock_gettime", "clock_nanosleep", "nanosleep", "gettimeofday", "read", "readv",
    "pread64", "write", "writev", "pwrite64", "lseek", "open", "openat", "openat2", "close", "close_range", "dup",
    "dup3", "fcntl", "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "getdents64", "getcwd", "chdir", "fchdir", "umask", "mkdir", "mkdirat",
    "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
    "ftruncate", "fsync", "fdatasync", "flock", "fchmod", "fchmodat", "fchown", "fchownat", "utimensat", "pipe2",
    "poll", "ppoll", "bind", "send", "sendto", "sendmsg", "recvfrom", "recvmsg", "recvmmsg", "getsockname",
    "setsockopt", "getsockopt", "shutdown", "pidfd_open", "pidfd_getfd",
    // Calls to change a running container, and to wait for children that join its namespaces.
    "wait4", "setfsuid", "setfsgid",
};
// clang-format on

// Calls of `config apply`, which reads the text of any user that can edit the ConfigMap.
// clang-format off
constexpr const char* kOfConfig[] = {
    "brk", "munmap", "clock_gettime", "exit_group", "geteuid",
    // Reads the configuration files of the node and of the cluster, and sysfs.
    "openat", "read", "lseek", "close", "newfstatat", "faccessat", "readlink", "readlinkat", "getdents64",
    // Replaces one file.
    "flock", "write", "fsync", "fchmod", "fchown", "rename", "unlink",
    // Waits for changes of a directory.
    "inotify_init1", "inotify_add_watch", "poll", "clock_nanosleep", "restart_syscall",
    // Reads netdevs and HCAs from the kernel.
    "setsockopt", "sendto", "recvfrom",
    // Variants of the calls above that libc makes on arm64, or before glibc 2.33.
    "unlinkat", "renameat", "renameat2", "ppoll", "stat", "lstat", "fstat",
};

// Calls of the process that serves metrics over HTTP. It can accept connections but opens no other socket.
constexpr const char* kOfServing[] = {
    "brk", "munmap", "mremap", "clock_gettime", "restart_syscall", "exit_group", "poll", "ppoll", "accept4", "recvfrom",
    "shutdown", "close",
};

// Calls of the process that talks to an API server. OpenSSL asks for random numbers, the time and its process ID.
constexpr const char* kOfClient[] = {
    "brk", "munmap", "mremap", "madvise", "clock_gettime", "gettimeofday", "time", "getrandom", "getpid", "futex",
    "restart_syscall", "exit_group", "poll", "ppoll", "connect", "getsockopt", "setsockopt", "recvfrom", "close",
};
// clang-format on

// Calls that no program of this project and no IPAM plugin makes.
// clang-format off
constexpr const char* kNever[] = {
    "ptrace", "process_vm_readv", "process_vm_writev", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "reboot", "swapon", "swapoff", "pivot_root", "open_by_handle_at", "userfaultfd",
    "perf_event_open", "io_uring_setup", "add_key", "request_key", "keyctl", "iopl", "ioperm", "acct", "quotactl",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "vhangup", "personality", "modify_ldt",
};

// Calls that no hook stage makes. If a stage makes one, an attacker controls it.
constexpr const char* kNotInStages[] = {
    "execve", "execveat", "chroot", "unshare", "sethostname", "setdomainname", "syslog", "setuid", "setgid",
    "setresuid", "setresgid", "setreuid", "setregid", "setgroups", "capset",
};
// clang-format on

constexpr std::uint64_t kNamespaceFlags =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Commands of bpf(2) for the BPF programs that filter a cgroup's device accesses. The last three are for BPF links that
// a container attached to a netdev: the hook detaches them when it restores the netdev.
constexpr bpf_cmd kBpfCommands[] = {BPF_PROG_QUERY,       BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD,
                                    BPF_PROG_LOAD,        BPF_PROG_ATTACH,       BPF_PROG_DETACH,
                                    BPF_LINK_GET_NEXT_ID, BPF_LINK_GET_FD_BY_ID, BPF_LINK_DETACH};

// Requests of ioctl(2). All but the first open a network namespace to which no path leads (netns_handle.cpp).
constexpr std::uint64_t kIoctls[] = {NS_GET_NSTYPE, TUNSETIFINDEX, TUNSETIFF, TUNGETDEVNETNS, SIOCGSKNS};

struct ReleaseFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, ReleaseFilter>;

int number(const char* name) {
  return seccomp_syscall_resolve_name(name);
}

// Adds a rule for a call. Succeeds without a rule if the architecture lacks the call. Returns false on any other error.
bool add(void* filter, std::uint32_t action, const char* name, const std::vector<scmp_arg_cmp>& arguments = {}) {
  const int call = number(name);
  if (call < 0) return true;
  return seccomp_rule_add_array(filter, action, call, static_cast<unsigned>(arguments.size()), arguments.data()) == 0;
}

bool add_all(void* filter, std::uint32_t action, std::span<const char* const> names) {
  for (const char* name : names)
    if (!add(filter, action, name)) return false;
  return true;
}

// Mask for arguments that are no addresses. Such arguments are 32 bits wide, and the kernel ignores the upper half of
// the register, so a filter must not compare it.
constexpr std::uint64_t kInt = UINT32_MAX;

scmp_arg_cmp exactly(unsigned index, std::uint64_t value) {
  return {index, SCMP_CMP_MASKED_EQ, kInt, value};
}
scmp_arg_cmp masked(unsigned index, std::uint64_t bits, std::uint64_t value) {
  return {index, SCMP_CMP_MASKED_EQ, bits, value};
}
scmp_arg_cmp null(unsigned index) {
  return {index, SCMP_CMP_EQ, 0, 0};
}

struct Bounded {
  const char* name;
  std::vector<scmp_arg_cmp> arguments;  // the call is allowed if all of these comparisons hold
};

// Calls that are allowed with certain arguments only. No memory may be executable, because code could be written into
// it. New sockets lead to the kernel or a netdev but to no process; the log is already open. Namespaces can be joined
// but not created. Device nodes can only be character devices. The mounts are those of container_root.cpp,
// run_steps.cpp and netlink.cpp.
std::vector<Bounded> bounded() {
  constexpr std::uint64_t kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  std::vector<Bounded> calls = {
      {"mmap", {masked(2, PROT_EXEC, 0)}},
      {"mprotect", {masked(2, PROT_EXEC, 0)}},
      {"socket", {exactly(0, AF_NETLINK), exactly(2, NETLINK_ROUTE)}},
      {"socket", {exactly(0, AF_NETLINK), exactly(2, NETLINK_RDMA)}},
      {"socket", {exactly(0, AF_NETLINK), exactly(2, NETLINK_GENERIC)}},
      {"socket", {exactly(0, AF_PACKET), exactly(2, 0)}},
      // This pair of sockets passes descriptors. A pair of type SOCK_DGRAM is not allowed: such a socket could also
      // send to any socket with a path.
      {"socketpair", {exactly(0, AF_UNIX), exactly(1, SOCK_SEQPACKET | SOCK_CLOEXEC)}},
      {"clone", {masked(0, kNamespaceFlags, 0)}},
      {"prctl", {exactly(0, PR_SET_PDEATHSIG)}},
      {"setns", {exactly(1, CLONE_NEWNS)}},
      {"setns", {exactly(1, CLONE_NEWNET)}},
      {"setrlimit", {exactly(0, RLIMIT_MEMLOCK)}},
      {"prlimit64", {exactly(1, RLIMIT_MEMLOCK)}},
      {"mknodat", {masked(2, S_IFMT, S_IFCHR)}},
      {"mknodat", {masked(2, S_IFMT, S_IFREG)}},  // makes a regular file, as open(2) with O_CREAT does
      {"open_tree", {exactly(2, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW)}},
      {"move_mount", {exactly(4, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)}},
      {"mount_setattr", {exactly(2, AT_EMPTY_PATH)}},
      {"fsopen", {exactly(1, FSOPEN_CLOEXEC)}},
      {"fsconfig", {exactly(1, FSCONFIG_SET_STRING)}},
      {"fsconfig", {exactly(1, FSCONFIG_CMD_CREATE)}},
      {"fsmount", {exactly(1, FSMOUNT_CLOEXEC), exactly(2, 0)}},
      {"fsmount", {exactly(1, FSMOUNT_CLOEXEC), exactly(2, kReadOnly)}},
      {"umount2", {exactly(1, MNT_DETACH)}},
  };
  for (const std::uint64_t flags :
       {std::uint64_t{MS_PRIVATE}, std::uint64_t{MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV},
        std::uint64_t{MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC}})
    calls.push_back({"mount", {null(0), null(2), exactly(3, flags), null(4)}});
  for (const std::uint64_t request : kIoctls)
    calls.push_back({"ioctl", {exactly(1, request)}});
  for (const bpf_cmd command : kBpfCommands)
    calls.push_back({"bpf", {exactly(0, command)}});
  return calls;
}

// Rule for the memory of a program that loads no code and maps no file.
Bounded own_memory() {
  return {"mmap", {masked(2, PROT_EXEC, 0), masked(3, MAP_ANONYMOUS, MAP_ANONYMOUS)}};
}

std::vector<Bounded> bounded_of_config() {
  return {
      own_memory(),
      {"socket", {exactly(0, AF_NETLINK), exactly(2, NETLINK_ROUTE)}},
      {"socket", {exactly(0, AF_NETLINK), exactly(2, NETLINK_RDMA)}},
      {"ioctl", {exactly(1, TCGETS)}},  // stdio checks whether its output is a terminal
  };
}

std::vector<Bounded> bounded_of_serving() {
  return {own_memory(), {"sendto", {null(4)}}};
}

std::vector<Bounded> bounded_of_client() {
  return {
      own_memory(),
      {"sendto", {null(4)}},
      {"socket", {exactly(0, AF_INET), masked(1, SOCK_STREAM, SOCK_STREAM)}},
      {"socket", {exactly(0, AF_INET6), masked(1, SOCK_STREAM, SOCK_STREAM)}},
  };
}

bool add_bounded(void* filter, const std::vector<Bounded>& calls) {
  return std::ranges::all_of(
      calls, [&](const Bounded& call) { return add(filter, SCMP_ACT_ALLOW, call.name, call.arguments); });
}

// Starts a filter. `otherwise`: the action for calls without a rule.
Filter start_filter(std::uint32_t otherwise) {
  Filter filter(seccomp_init(otherwise));
  const bool good = filter && seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0 &&
                    // Arrange the rules as a binary tree. When the kernel loads a filter, it runs the filter once for
                    // each call number (Linux 5.11), and a tree makes each run short.
                    seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0;
  return good ? std::move(filter) : nullptr;
}

// Makes a filter that allows only the calls in `always` and `bounded`. The calls of kNever and kNotInStages kill the
// process. Any other call gets the action `otherwise`.
Filter make_filter(std::uint32_t otherwise, std::span<const char* const> always, const std::vector<Bounded>& bounded) {
  Filter filter = start_filter(otherwise);
  const bool good =
      filter && add_all(filter.get(), SCMP_ACT_ALLOW, always) && add_bounded(filter.get(), bounded) &&
      (otherwise == SCMP_ACT_KILL_PROCESS || (add_all(filter.get(), SCMP_ACT_KILL_PROCESS, kNever) &&
                                              add_all(filter.get(), SCMP_ACT_KILL_PROCESS, kNotInStages)));
  return good ? std::move(filter) : nullptr;
}

Filter make_filter_for_stages() {
  Filter filter = make_filter(SCMP_ACT_ERRNO(EPERM), kAlways, bounded());
  // ENOSYS makes glibc fall back to clone(2). A filter can check the flags of clone(2), but not those of clone3(2),
  // which are in memory.
  return filter && add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), "clone3") ? std::move(filter) : nullptr;
}

Filter make_filter_for_children() {
  Filter filter = start_filter(SCMP_ACT_ALLOW);
  return filter && add_all(filter.get(), SCMP_ACT_ERRNO(EPERM), kNever) ? std::move(filter) : nullptr;
}

// Returns the instructions of a filter. libseccomp exports a filter to a descriptor only, so this uses a temporary
// file.
std::vector<sock_filter> instructions(void* filter) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  if (!file || seccomp_export_bpf(filter, fileno(file.get())) != 0) return {};
  std::rewind(file.get());
  std::vector<sock_filter> result;
  sock_filter next{};
  while (std::fread(&next, sizeof next, 1, file.get()) == 1)
    result.push_back(next);
  return result;
}

bool print(const char* name, const Filter& filter) {
  if (!filter) return false;
  const auto program = instructions(filter.get());
  std::printf("constexpr sock_filter %s[] = {\n", name);
  for (const sock_filter& next : program)
    std::printf("    {0x%x, %u, %u, 0x%x},\n", next.code, next.jt, next.jf, next.k);
  std::printf("};\n");
  return !program.empty();
}

}  // namespace

int main() {
  // API level 3 has SCMP_ACT_KILL_PROCESS (libseccomp 2.4). Without this call, libseccomp detects the level by
  // seccomp(2) on the building machine. In a build under an emulator, seccomp(2) may be missing.
  if (seccomp_api_set(3) == 0 && print("kFilter", make_filter_for_stages()) &&
      print("kFilterForChildren", make_filter_for_children()) &&
      print("kFilterForConfig", make_filter(SCMP_ACT_ERRNO(EPERM), kOfConfig, bounded_of_config())) &&
      print("kFilterForServing", make_filter(SCMP_ACT_KILL_PROCESS, kOfServing, bounded_of_serving())) &&
      print("kFilterForClient", make_filter(SCMP_ACT_KILL_PROCESS, kOfClient, bounded_of_client())) &&
      std::fflush(stdout) == 0)
    return 0;
  std::fprintf(stderr, "sandbox_filter_gen: libseccomp refused the filter\n");
  return 1;
}
