// Build-time program: writes the seccomp filter of sandbox.cpp as a C++ array to stdout. Run on the machine that
// builds, for the architecture it builds for; calls that an architecture lacks are left out.
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

namespace {

// Memory, files, processes' own affairs: what glibc and libstdc++ do by themselves, and reading and writing files.
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
    "poll", "ppoll", "connect", "bind", "send", "sendto", "sendmsg", "recvfrom", "recvmsg", "getsockname",
    "setsockopt", "getsockopt", "shutdown", "pidfd_open",
    // What is done to a live container, and in the children that join its namespaces.
    "wait4", "mount", "open_tree", "move_mount", "mount_setattr", "umount2", "mknodat", "setfsuid", "setfsgid",
    "prlimit64", "setrlimit", "fsopen", "fsconfig", "fsmount",
};
// clang-format on

// Never done by any stage: a process that tries is not the hook any more.
// clang-format off
constexpr const char* kKilled[] = {
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "pivot_root", "chroot",
    "unshare", "open_by_handle_at", "userfaultfd", "perf_event_open", "io_uring_setup", "add_key", "request_key",
    "keyctl", "iopl", "ioperm", "acct", "quotactl", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
    "sethostname", "setdomainname", "syslog", "vhangup", "personality", "modify_ldt", "setuid", "setgid",
    "setresuid", "setresgid", "setreuid", "setregid", "setgroups", "capset",
};
// clang-format on

constexpr std::uint64_t kNamespaceFlags =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

constexpr bpf_cmd kBpfCommands[] = {BPF_PROG_QUERY, BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD,
                                    BPF_PROG_LOAD,  BPF_PROG_ATTACH,       BPF_PROG_DETACH};

struct ReleaseFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, ReleaseFilter>;

int number(const char* name) {
  return seccomp_syscall_resolve_name(name);
}

// False: an error other than that the architecture lacks the call.
bool add(void* filter, std::uint32_t action, const char* name, std::vector<scmp_arg_cmp> arguments = {}) {
  const int call = number(name);
  if (call < 0) return true;
  return seccomp_rule_add_array(filter, action, call, static_cast<unsigned>(arguments.size()), arguments.data()) == 0;
}

bool add_all(void* filter, std::uint32_t action, std::span<const char* const> names) {
  for (const char* name : names) {
    if (!add(filter, action, name)) return false;
  }
  return true;
}

// Calls that are allowed with some arguments only: no executable memory, into which code could be put; no sockets but
// to the kernel and to local peers; of namespaces only joining.
bool add_bounded(void* filter) {
  const auto allow = [&](const char* name, scmp_arg_cmp argument) {
    return add(filter, SCMP_ACT_ALLOW, name, {argument});
  };
  const auto without = [](unsigned index, std::uint64_t bits) {
    return scmp_arg_cmp{index, SCMP_CMP_MASKED_EQ, bits, 0};
  };
  const auto exactly = [](unsigned index, std::uint64_t value) { return scmp_arg_cmp{index, SCMP_CMP_EQ, value, 0}; };
  bool good = allow("mmap", without(2, PROT_EXEC)) && allow("mprotect", without(2, PROT_EXEC)) &&
              allow("socket", exactly(0, AF_NETLINK)) && allow("socket", exactly(0, AF_UNIX)) &&
              allow("socket", exactly(0, AF_PACKET)) && allow("socketpair", exactly(0, AF_UNIX)) &&
              allow("ioctl", exactly(1, NS_GET_NSTYPE)) &&
              // glibc's fallback for it is clone(2), whose flags can be seen.
              add(filter, SCMP_ACT_ERRNO(ENOSYS), "clone3");
  good = good && allow("clone", without(0, kNamespaceFlags)) && allow("prctl", exactly(0, PR_SET_PDEATHSIG)) &&
         allow("setns", exactly(1, CLONE_NEWNS)) && allow("setns", exactly(1, CLONE_NEWNET));
  for (const bpf_cmd command : kBpfCommands)
    good = good && allow("bpf", exactly(0, command));
  return good;
}

Filter make_filter() {
  Filter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  const bool good = filter && seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0 &&
                    // A binary tree: the kernel tries every call once when it takes the filter.
                    seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0 &&
                    add_all(filter.get(), SCMP_ACT_ALLOW, kAlways) && add_bounded(filter.get()) &&
                    add_all(filter.get(), SCMP_ACT_KILL_PROCESS, kKilled);
  return good ? std::move(filter) : nullptr;
}

// libseccomp writes to a descriptor only.
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

bool print(const char* name) {
  const Filter filter = make_filter();
  if (!filter) return false;
  const auto program = instructions(filter.get());
  std::printf("constexpr sock_filter %s[] = {\n", name);
  for (const sock_filter& next : program) {
    std::printf("    {0x%x, %u, %u, 0x%x},\n", next.code, next.jt, next.jf, next.k);
  }
  std::printf("};\n");
  return !program.empty();
}

}  // namespace

int main() {
  if (print("kFilter") && std::fflush(stdout) == 0) return 0;
  std::fprintf(stderr, "sandbox_filter_gen: libseccomp refused the filter\n");
  return 1;
}
