#include "hook/ledger/locks.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <functional>
#include <optional>
#include <string_view>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;

constexpr const char* kSomebody = "another process holds it";

std::string holder_sentence(const ProcessIdentity& holder, std::string_view container, std::int64_t seconds) {
  constexpr std::size_t kLongestComm = 64;
  const auto comm = fabric::sysfs::read_file(fmt::format("/proc/{}/comm", holder.pid), kLongestComm);
  std::string who = fabric::printable(fabric::trim(fabric::value_or(comm, std::string("?"))));
  if (!container.empty()) who += fmt::format(", container `{}`", fabric::printable(container));
  return fmt::format("process {} ({}, since {} s) holds it", holder.pid, who, std::max<std::int64_t>(seconds, 0));
}

// How long it runs. Start times count in clock ticks from boot (proc(5)), suspension included.
std::int64_t age(const ProcessIdentity& process) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec - static_cast<std::int64_t>(process.start_time) / ::sysconf(_SC_CLK_TCK);
}

// Whether one of the process's descriptors has the lock that such a line of fdinfo shows.
bool has_lock(std::string_view pid, std::string_view line) {
  constexpr std::size_t kLargestInfo = std::size_t{1} << 20;
  const std::string path = fmt::format("/proc/{}/fdinfo", pid);
  const auto directory = fabric::sysfs::Directory::open(path);
  if (!directory) return false;
  const auto descriptors = directory->list();
  return std::any_of(descriptors.begin(), descriptors.end(), [&](const std::string& fd) {
    const auto info = fabric::sysfs::read_file(fmt::format("{}/{}", path, fd), kLargestInfo);
    return fabric::value_or(info, std::string()).find(line) != std::string::npos;
  });
}

// What the holder writes into the lock file of an HCA, in one write; container may be empty.
std::string lock_text(const ProcessIdentity& holder, std::string_view container) {
  return fmt::format("{} {} {}\n", holder.pid, holder.start_time, container);
}

// "process 123 (rdma-hook, container `web-1`, since 12 s) holds it" of the lock file of an HCA, whose last change is
// when the lock was taken; kSomebody where the file names no living process.
std::string hca_lock_holder(int fd) {
  char buffer[1024];
  const ssize_t count = ::pread(fd, buffer, sizeof buffer, 0);
  struct stat info {};
  if (count <= 0 || ::fstat(fd, &info) != 0) return kSomebody;
  const std::string_view text(buffer, static_cast<std::size_t>(count));
  // Behind the line may be the rest of a longer one.
  const std::string_view line = text.substr(0, text.find('\n'));
  const auto fields = fabric::split(line, ' ');
  if (fields.size() < 3) return kSomebody;
  const auto pid = fabric::parse_number<pid_t>(fields[0]);
  const auto start_time = fabric::parse_number<std::uint64_t>(fields[1]);
  if (!pid || !start_time) return kSomebody;
  const ProcessIdentity holder{*pid, *start_time};
  const auto seen = look_at(holder);
  if (!seen || *seen == Presence::kGone) return kSomebody;
  const std::string_view container = line.substr(fields[0].size() + fields[1].size() + 2);
  return holder_sentence(holder, container, ::time(nullptr) - info.st_mtim.tv_sec);
}

// The same of a lock on one byte (F_OFD_SETLK), with the time that the process runs: fdinfo of procfs names the
// descriptor, since F_OFD_GETLK names no process (fcntl(2)). Without CAP_SYS_PTRACE others' fdinfo stays unseen.
std::string byte_lock_holder(int fd, off_t offset) {
  struct stat info {};
  const auto proc = fabric::sysfs::Directory::open("/proc");
  if (!proc || ::fstat(fd, &info) != 0) return kSomebody;
  // "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1a:4711 5 5" (lock_get_status() of fs/locks.c, Linux 4.1 and later).
  const std::string line =
      fmt::format(" {:02x}:{:02x}:{} {} {}\n", major(info.st_dev), minor(info.st_dev), info.st_ino, offset, offset);
  for (const std::string& name : proc->list()) {
    const auto pid = fabric::parse_number<pid_t>(name);
    if (!pid || !has_lock(name, line)) continue;
    const auto holder = identify(*pid);
    return holder ? holder_sentence(*holder, "", age(*holder)) : kSomebody;
  }
  return kSomebody;
}

constexpr long kFirstPause = 100'000;  // ns
constexpr long kLongestPause = 4'000'000;

// Asks again until the lock is had: neither flock nor fcntl can wait for a bounded time, and a timer's signal would
// need a handler. 0, or an errno: EAGAIN when the time is over.
int acquire(const std::function<int()>& attempt, int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  long pause = kFirstPause;
  for (;;) {
    if (attempt() == 0) return 0;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return errno;
    if (Clock::now() >= deadline) return EAGAIN;
    const timespec wait{.tv_sec = 0, .tv_nsec = pause};
    ::nanosleep(&wait, nullptr);
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::string duration(int ms) {
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

// 62 bits: an offset must not be negative, nor offset + 1 overflow.
off_t key_offset(std::string_view key) {
  return static_cast<off_t>(checksum(key) >> 2);
}

}  // namespace

Result<UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, int timeout_ms) {
  TRY_VOID(check_hca_name(name));
  // It is mostly there: then this is one system call, as in index.hpp.
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  UniqueFd fd(::openat(files.hca.fd.get(), (name + "/lock").c_str(), kFlags));
  if (!fd.ok()) {
    const auto hca = TRY(files.open_hca(name, true));
    fd.reset(::openat(hca.fd.get(), "lock", kFlags | O_CREAT, 0600));
    if (!fd.ok()) return sys_error(errno, "cannot open `{}/lock`", hca.path);
  }
  const int failed = acquire([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }, timeout_ms);
  if (failed == EAGAIN) {
    return Error{.message = fmt::format("cannot lock HCA `{}` within {}: {}", name, duration(timeout_ms),
                                        hca_lock_holder(fd.get())),
                 .code = EAGAIN,
                 .hint = "try again; if it stays so, look what that process waits for"};
  }
  if (failed != 0) return sys_error(failed, "cannot lock HCA `{}`", name);
  // For that message alone, hence no error.
  const std::string text = lock_text(files.self, files.container);
  (void)!::pwrite(fd.get(), text.data(), text.size(), 0);
  return fd;
}

Result<KeyLock> KeyLock::take(const LedgerFiles& files, const std::vector<std::string>& keys, int timeout_ms) {
  UniqueFd fd(::openat(files.root.fd.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}/lock`", files.root.path);
  std::vector<off_t> offsets;
  offsets.reserve(keys.size());
  for (const std::string& key : keys)
    offsets.push_back(key_offset(key));
  std::sort(offsets.begin(), offsets.end());
  for (const off_t offset : offsets) {
    // Of the open file description, not of the process: threads exclude each other too, and closing another
    // descriptor of the file does not give them up (fcntl(2), "Open file description locks", Linux 3.15).
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = offset;
    range.l_len = 1;
    const int failed = acquire([&] { return ::fcntl(fd.get(), F_OFD_SETLK, &range); }, timeout_ms);
    if (failed == EAGAIN) {
      // Who does not wait leaves it to the other, and asks at every start.
      const std::string holder = timeout_ms > 0 ? byte_lock_holder(fd.get(), offset) : "another process holds it";
      return Error{.message = fmt::format("cannot lock grant `{}` within {}: {}",
                                          fabric::one_line(fabric::join(keys, "` or `")), duration(timeout_ms), holder),
                   .code = EAGAIN,
                   .hint = "try again; if it stays so, look what that process waits for"};
    }
    if (failed != 0) return sys_error(failed, "cannot lock `{}/lock`", files.root.path);
  }
  return KeyLock(std::move(fd));
}

}  // namespace hook
