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
#include <string_view>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr const char* kAnotherProcess = "another process holds it";

std::string lock_sentence(const ProcessIdentity& process, std::string_view container, std::int64_t seconds) {
  const auto comm = base::read_attribute(fmt::format("/proc/{}/comm", process.pid));
  std::string who = base::printable(base::value_or(comm, std::string("?")));
  if (!container.empty()) who += fmt::format(", container `{}`", base::printable(container));
  return fmt::format("process {} ({}, since {} s) holds it", process.pid, who, std::max<std::int64_t>(seconds, 0));
}

// Returns the seconds since the process started. Start times count clock ticks since boot, suspend included (proc(5)),
// as CLOCK_BOOTTIME does.
std::int64_t age(const ProcessIdentity& process) {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec - static_cast<std::int64_t>(process.start_time) / ::sysconf(_SC_CLK_TCK);
}

// Returns true if /proc/PID/fdinfo/FD of one of the process's descriptors has this line.
bool has_lock(std::string_view pid, std::string_view line) {
  constexpr std::size_t kLargestFdinfo = std::size_t{1} << 20;
  const std::string path = fmt::format("/proc/{}/fdinfo", pid);
  const auto directory = base::Directory::open(path);
  if (!directory) return false;
  const auto descriptors = directory->list();
  return std::ranges::any_of(descriptors, [&](const std::string& fd) {
    const auto info = base::read_file(fmt::format("{}/{}", path, fd), kLargestFdinfo);
    return base::value_or(info, std::string()).find(line) != std::string::npos;
  });
}

// Returns the line that a process writes into the lock file of an HCA, in one write; container may be empty.
std::string lock_text(const ProcessIdentity& process, std::string_view container) {
  return fmt::format("{} {} {}\n", process.pid, process.start_time, container);
}

// Returns "process 123 (rdma-hook, container `web-1`, since 12 s) holds it" for the lock file of an HCA, or
// kAnotherProcess if the file names no living process. The mtime of the file is the time at which the lock was taken.
std::string process_with_hca_lock(int fd) {
  char buffer[1024];
  const ssize_t count = ::pread(fd, buffer, sizeof buffer, 0);
  struct stat info {};
  if (count <= 0 || ::fstat(fd, &info) != 0) return kAnotherProcess;
  const std::string_view text(buffer, static_cast<std::size_t>(count));
  // Only the first line counts: the file is not truncated, so the end of an earlier, longer text may follow.
  const std::string_view line = text.substr(0, text.find('\n'));
  const auto fields = base::split(line, ' ');
  if (fields.size() < 3) return kAnotherProcess;
  const auto pid = base::parse_number<pid_t>(fields[0]);
  const auto start_time = base::parse_number<std::uint64_t>(fields[1]);
  if (!pid || !start_time) return kAnotherProcess;
  const ProcessIdentity process{*pid, *start_time};
  const auto seen = read_presence(process);
  if (!seen || *seen == Presence::kAbsent) return kAnotherProcess;
  const std::string_view container = line.substr(fields[0].size() + fields[1].size() + 2);
  return lock_sentence(process, container, ::time(nullptr) - info.st_mtim.tv_sec);
}

// Returns the text of process_with_hca_lock() for a lock on one byte (F_OFD_SETLK). The text has no container, and its
// age is that of the process. F_OFD_GETLK does not name the process that holds the lock (fcntl(2)), so this function
// searches the fdinfo files of all processes. Without CAP_SYS_PTRACE it cannot read the fdinfo files of another user's
// processes.
std::string process_with_byte_lock(int fd, off_t offset) {
  struct stat info {};
  const auto proc = base::Directory::open("/proc");
  if (!proc || ::fstat(fd, &info) != 0) return kAnotherProcess;
  // This line of fdinfo has the form "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1a:4711 5 5" (lock_get_status() of
  // fs/locks.c, Linux 4.1 and later).
  const std::string line =
      fmt::format(" {:02x}:{:02x}:{} {} {}\n", major(info.st_dev), minor(info.st_dev), info.st_ino, offset, offset);
  for (const std::string& name : proc->list()) {
    const auto pid = base::parse_number<pid_t>(name);
    if (!pid || !has_lock(name, line)) continue;
    const auto process = identify(*pid);
    return process ? lock_sentence(*process, "", age(*process)) : kAnotherProcess;
  }
  return kAnotherProcess;
}

std::string duration(int ms) {
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

// Returns the key's checksum shifted right by two bits: a file offset must not be negative, and offset + 1 must not
// overflow.
off_t key_offset(std::string_view key) {
  return static_cast<off_t>(checksum(key) >> 2);
}

}  // namespace

Result<UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, int timeout_ms) {
  TRY_VOID(check_hca_name(name));
  // The file usually exists, so try to open it before its directory is checked or made.
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  UniqueFd fd(::openat(files.hca.fd.get(), (name + "/lock").c_str(), kFlags));
  if (!fd.ok()) {
    TRY_VOID(files.begin_hca(name));
    const auto hca = TRY(files.open_hca(name, true));
    fd.reset(::openat(hca.fd.get(), "lock", kFlags | O_CREAT, 0600));
    if (!fd.ok()) return sys_error(errno, "cannot open `{}/lock`", hca.path);
  }
  const int failed = base::flock_within(fd.get(), LOCK_EX, std::chrono::milliseconds(timeout_ms));
  if (failed == EAGAIN) {
    return Error{
        fmt::format("cannot lock HCA `{}` within {}: {}", name, duration(timeout_ms), process_with_hca_lock(fd.get())),
        EAGAIN, "try again; if the error persists, check that process"};
  }
  if (failed != 0) return sys_error(failed, "cannot lock HCA `{}`", name);
  // The text is only for messages of processes that wait for this lock, so a failed write is no error.
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
  std::ranges::sort(offsets);
  for (const off_t offset : offsets) {
    // The lock belongs to the open file description of this call, not to the process. So it also excludes other
    // threads, and close() of another descriptor of the file does not release it (fcntl(2), "Open file description
    // locks", Linux 3.15).
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = offset;
    range.l_len = 1;
    // EACCES too may mean that another process holds the lock (fcntl(2)).
    const auto attempt = [&] {
      return ::fcntl(fd.get(), F_OFD_SETLK, &range) == 0 ? 0 : errno == EACCES ? EAGAIN : errno;
    };
    const int failed = base::acquire(attempt, std::chrono::milliseconds(timeout_ms));
    if (failed == EAGAIN) {
      // A call that does not wait (timeout 0) runs at every start of a container, and skips a locked grant. To keep it
      // cheap, it does not search procfs for the process that holds the lock.
      const std::string process =
          timeout_ms > 0 ? process_with_byte_lock(fd.get(), offset) : "another process holds it";
      return Error{fmt::format("cannot lock grant `{}` within {}: {}", base::one_line(base::join(keys, "` or `")),
                               duration(timeout_ms), process),
                   EAGAIN, "try again; if the error persists, check that process"};
    }
    if (failed != 0) return sys_error(failed, "cannot lock `{}/lock`", files.root.path);
  }
  return KeyLock(std::move(fd));
}

}  // namespace hook
