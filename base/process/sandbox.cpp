#include "base/process/sandbox.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

namespace base {
namespace {

// The arrays of sock_filter kFilter, kFilterForChildren, kFilterForConfig, kFilterForServing and kFilterForClient,
// written by sandbox_filter_gen.
#include "sandbox_filter.inc"

constexpr int kStandardDescriptors = 3;

// Opens /dev/null on closed descriptors 0 to 2. Otherwise a file that is opened later could get such a number: the hook
// would then read it as the container's state (0), or write its log to it (2).
Result<void> open_standard_descriptors() {
  if (has_standard_descriptors()) return {};
  for (;;) {
    const int fd = open("/dev/null", O_RDWR | O_NOFOLLOW);  // NOLINT(android-cloexec-open): it stands for stdin
    if (fd < 0) return sys_error(errno, "cannot open `/dev/null`");
    if (fd < kStandardDescriptors) continue;
    close(fd);
    return {};
  }
}

// Raises the limit of open descriptors. crun runs hooks under the container's limits, which may be too low: the hook
// holds one lock for each HCA.
void raise_descriptor_limit() {
  rlimit limit{};
  constexpr rlim_t kEnough = 16384;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  const rlimit enough{kEnough, std::max(kEnough, limit.rlim_max)};
  if (setrlimit(RLIMIT_NOFILE, &enough) == 0) return;
  limit.rlim_cur = limit.rlim_max;  // raising the soft limit up to the hard limit needs no CAP_SYS_RESOURCE
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The capabilities that the steps of a hook stage need. If the process lacks one of them from the start, it goes on
// without it. CAP_DAC_READ_SEARCH adds nothing to CAP_DAC_OVERRIDE as long as no file handle is opened. CAP_FOWNER is
// not needed, because the steps change only files that they made.
constexpr int kKeptCapabilities[] = {
    CAP_SYS_ADMIN,     // setns(2), mounts, BPF programs and device lists of cgroups
    CAP_SYS_CHROOT,    // setns(2) of a mount namespace
    CAP_SYS_PTRACE,    // /proc/PID of containers and of processes that hold a lock
    CAP_SYS_RESOURCE,  // RLIMIT_MEMLOCK of containers
    CAP_SYSLOG,        // reading a cgroup's BPF instructions (kallsyms_show_value(), Linux 6.12)
    CAP_NET_ADMIN,     // links, addresses, routes, RDMA devices
    CAP_NET_RAW,       // ARP and ND probes
    CAP_MKNOD,         // makes device nodes
    CAP_CHOWN,         // device nodes of another owner
    CAP_DAC_OVERRIDE,  // directories of images, and of other users
    CAP_SETUID,        // setfsuid(2), to open files as the container's root
    CAP_SETGID,        // for setfsgid(2)
};

// The capabilities of `config apply`. CAP_CHOWN: the new config.json gets the owner and group of the old file.
// CAP_DAC_OVERRIDE: a mounted directory may belong to another user.
constexpr int kConfigCapabilities[] = {CAP_CHOWN, CAP_DAC_OVERRIDE};

std::uint32_t kept_in(int word, std::span<const int> kept) {
  std::uint32_t mask = 0;
  for (const int capability : kept)
    mask |= CAP_TO_INDEX(capability) == word ? std::uint32_t{CAP_TO_MASK(capability)} : 0;
  return mask;
}

// Keeps only the capabilities in `kept`. Leaves the bounding set as it is: it matters only at execve(2), which the
// filter forbids. glibc has no functions for capget(2) and capset(2).
Result<void> drop_capabilities(std::span<const int> kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3] = {};
  for (int word = 0; word < _LINUX_CAPABILITY_U32S_3; ++word)
    words[word].permitted = words[word].effective = kept_in(word, kept);
  // Root of the node usually has all of them. The kernel refuses a capability that the process lacks.
  if (syscall(SYS_capset, &header, words) == 0) return {};
  bool done = syscall(SYS_capget, &header, words) == 0;
  for (int word = 0; word < _LINUX_CAPABILITY_U32S_3; ++word) {
    words[word].permitted &= kept_in(word, kept);
    words[word].effective &= kept_in(word, kept);
    words[word].inheritable = 0;
  }
  done = done && syscall(SYS_capset, &header, words) == 0;
  return done ? Result<void>() : sys_error(errno, "cannot drop capabilities");
}

// Sets no_new_privs, so that execve(2) grants no privileges. Without CAP_SYS_ADMIN, a process can set a seccomp filter
// only with this flag (seccomp(2)).
Result<void> forbid_new_privileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return sys_error(errno, "cannot set `no_new_privs`");
  return {};
}

Result<void> set_filter(std::span<const sock_filter> filter) {
  // The kernel only reads the filter, but sock_fprog has no const pointer.
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &program) == 0) return {};
  return Error{fmt::format("cannot restrict the process's system calls: {}", std::strerror(errno)), errno,
               "run a kernel with CONFIG_SECCOMP_FILTER"};
}

}  // namespace

bool has_standard_descriptors() {
  pollfd standard[kStandardDescriptors] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}};
  const auto is_open = [](const pollfd& one) { return (one.revents & POLLNVAL) == 0; };
  return poll(standard, kStandardDescriptors, 0) >= 0 && std::ranges::all_of(standard, is_open);
}

void close_from(int first) {
  // The loop is for a kernel without close_range(2). The loop ends at 2^20, because a huge RLIMIT_NOFILE would make it
  // last for seconds.
  if (syscall(SYS_close_range, first, UINT_MAX, 0) == 0) return;
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1U << 20;
  const int end = known ? static_cast<int>(limit.rlim_cur) : 1 << 20;
  for (int fd = first; fd < end; ++fd)
    close(fd);
}

Result<void> isolate() {
  const char* node = std::getenv(kNodeName);
  const std::optional<std::string> name = node ? std::optional<std::string>(node) : std::nullopt;
  clearenv();
  if (name && setenv(kNodeName, name->c_str(), 1) != 0)
    return sys_error(errno, "cannot set the environment variable `{}`", kNodeName);
  if (chdir("/") != 0) return sys_error(errno, "cannot change the working directory to `/`");
  umask(077);
  TRY_VOID(open_standard_descriptors());  // first, because any other open() would get the numbers 0 to 2
  close_from(kStandardDescriptors);
  raise_descriptor_limit();
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // a process may always lower its limits
  prctl(PR_SET_DUMPABLE, 0);
  return forbid_new_privileges();
}

Result<void> restrict_process() {
  TRY_VOID(drop_capabilities(kKeptCapabilities));  // first, because the filter forbids capset(2)
  return set_filter(kFilter);
}

Result<void> restrict_with_children() {
  TRY_VOID(forbid_new_privileges());
  return set_filter(kFilterForChildren);
}

Result<void> restrict_to_config() {
  TRY_VOID(drop_capabilities(kConfigCapabilities));
  TRY_VOID(forbid_new_privileges());
  return set_filter(kFilterForConfig);
}

Result<void> restrict_to_serving() {
  TRY_VOID(drop_capabilities({}));
  TRY_VOID(forbid_new_privileges());
  return set_filter(kFilterForServing);
}

Result<void> restrict_to_client() {
  TRY_VOID(drop_capabilities({}));
  TRY_VOID(forbid_new_privileges());
  return set_filter(kFilterForClient);
}

}  // namespace base
