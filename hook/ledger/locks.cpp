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

// A call that does not wait (timeout 0) runs at every start of a container, and skips a locked grant. To keep it cheap,
// it does not search procfs for the process that holds the lock.
constexpr const char* kAnotherProcess = "another process holds it";
constexpr std::int64_t kSecond = 1000000000;

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

// The process that the text of a lock file names, and its container; the time of the text.
struct LockNote {
  ProcessIdentity process;
  std::string container;
  std::int64_t since_ns = 0;
};

// Returns nullopt if the file names no process. The mtime of the file is the time at which the lock was taken.
std::optional<LockNote> note_in(int fd) {
  char buffer[1024];
  const ssize_t count = ::pread(fd, buffer, sizeof buffer, 0);
  struct stat info {};
  if (count <= 0 || ::fstat(fd, &info) != 0) return std::nullopt;
  const std::string_view text(buffer, static_cast<std::size_t>(count));
  // Only the first line counts: the file is not truncated, so the end of an earlier, longer text may follow.
  const std::string_view line = text.substr(0, text.find('\n'));
  const auto fields = base::split(line, ' ');
  if (fields.size() < 3) return std::nullopt;
  const auto pid = base::parse_number<pid_t>(fields[0]);
  const auto start_time = base::parse_number<std::uint64_t>(fields[1]);
  if (!pid || !start_time) return std::nullopt;
  return LockNote{{*pid, *start_time},
                  std::string(line.substr(fields[0].size() + fields[1].size() + 2)),
                  std::int64_t{info.st_mtim.tv_sec} * kSecond + info.st_mtim.tv_nsec};
}

std::string lock_sentence(const LockNote& note) {
  return lock_sentence(note.process, note.container, ::time(nullptr) - note.since_ns / kSecond);
}

// Returns the process with a lock of which /proc/PID/fdinfo has a line with this end; nullopt: none, or it cannot be
// read. The line has the form "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1a:4711 5 5" (lock_get_status() of fs/locks.c,
// Linux 4.1 and later). Without CAP_SYS_PTRACE this function cannot read the fdinfo files of another user's processes.
std::optional<ProcessIdentity> find_locker(int fd, std::string_view range) {
  struct stat info {};
  const auto proc = base::Directory::open("/proc");
  if (!proc || ::fstat(fd, &info) != 0) return std::nullopt;
  const std::string line =
      fmt::format(" {:02x}:{:02x}:{} {}\n", major(info.st_dev), minor(info.st_dev), info.st_ino, range);
  for (const std::string& name : proc->list()) {
    const auto pid = base::parse_number<pid_t>(name);
    if (!pid || !has_lock(name, line)) continue;
    const auto process = identify(*pid);
    return process ? std::optional(*process) : std::nullopt;
  }
  return std::nullopt;
}

// Returns "process 123 (rdma-hook, container `web-1`, since 12 s) holds it" for the lock file of an HCA, or
// kAnotherProcess. A call writes its name into one of the files that it locks, and an earlier text stays in the other
// lock files. So only the text of the process that has the lock counts.
std::string process_with_hca_lock(const LedgerFiles& files, int fd) {
  const auto locker = find_locker(fd, "0 EOF");
  if (!locker) return kAnotherProcess;
  std::optional<LockNote> newest;  // a daemon has older texts, of earlier containers, in other files
  const auto names = list_names(files.hca);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    const UniqueFd file = base::open_to_read(files.hca.fd.get(), (name + "/lock").c_str(), O_NOFOLLOW);
    auto note = file.ok() ? note_in(file.get()) : std::nullopt;
    if (note && note->process == *locker && (!newest || note->since_ns > newest->since_ns)) newest = std::move(note);
  }
  return newest ? lock_sentence(*newest) : lock_sentence(*locker, "", age(*locker));
}

// Returns a text as process_with_hca_lock() for a lock on one byte (F_OFD_SETLK). The text has no container, and its
// age is that of the process. F_OFD_GETLK does not name the process that holds the lock (fcntl(2)). A caller that tries
// again and again would read the descriptors of all processes each time, so the search is made once a second.
std::string process_with_byte_lock(int fd, off_t offset) {
  static thread_local std::chrono::steady_clock::time_point next;
  static thread_local std::pair<off_t, std::string> last;
  const auto now = std::chrono::steady_clock::now();
  if (now < next && last.first == offset) return last.second;
  const auto locker = find_locker(fd, fmt::format("{} {}", offset, offset));
  last = {offset, locker ? lock_sentence(*locker, "", age(*locker)) : kAnotherProcess};
  next = now + std::chrono::seconds(1);
  return last.second;
}

std::string duration(int ms) {
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

// Returns the key's checksum shifted right by two bits: a file offset must not be negative, and offset + 1 must not
// overflow.
off_t key_offset(std::string_view key) {
  return static_cast<off_t>(checksum(key) >> 2);
}

struct flock byte_range(int type, off_t offset) {
  struct flock range {};
  range.l_type = static_cast<short>(type);
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return range;
}

}  // namespace

Result<UniqueFd> lock_hca(const LedgerFiles& files, const std::string& name, const LockTime& time, bool is_named,
                          bool names_process) {
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
  const int failed =
      base::flock_within(fd.get(), LOCK_EX, std::chrono::milliseconds(base::ms_until(time.until, time.ms)));
  if (failed == EAGAIN) {
    const bool is_wanted = time.ms > 0 && names_process;
    const std::string process = is_wanted ? process_with_hca_lock(files, fd.get()) : kAnotherProcess;
    return Error{fmt::format("cannot lock HCA `{}` within {}: {}", name, duration(time.ms), process), EAGAIN,
                 "try again; if the error persists, check that process", FailureReason::kTimeout};
  }
  if (failed != 0) return sys_error(failed, "cannot lock HCA `{}`", name);
  if (!is_named) return fd;
  // The text is only for messages of processes that wait for this lock, so a failed write is no error.
  const std::string text = lock_text(files.self, files.container);
  (void)!::pwrite(fd.get(), text.data(), text.size(), 0);
  return fd;
}

Result<KeyLock> KeyLock::take(const LedgerFiles& files, const std::vector<std::string>& keys, int timeout_ms) {
  if (timeout_ms == kUsualWait) timeout_ms = files.key_wait_ms;
  KeyLock lock(TRY(files.key_locks()));
  std::vector<off_t> offsets;
  offsets.reserve(keys.size());
  for (const std::string& key : keys)
    offsets.push_back(key_offset(key));
  std::ranges::sort(offsets);
  for (const off_t offset : offsets) {
    // The lock belongs to the open file description of this ledger, not to the process. So it also excludes other
    // threads, and close() of another descriptor of the file does not release it (fcntl(2), "Open file description
    // locks", Linux 3.15).
    struct flock range = byte_range(F_WRLCK, offset);
    // EACCES too may mean that another process holds the lock (fcntl(2)).
    const auto attempt = [&] {
      return ::fcntl(lock.fd_, F_OFD_SETLK, &range) == 0 ? 0 : errno == EACCES ? EAGAIN : errno;
    };
    const int failed = base::acquire(attempt, std::chrono::milliseconds(timeout_ms));
    if (failed == EAGAIN) {
      const std::string process = timeout_ms > 0 ? process_with_byte_lock(lock.fd_, offset) : kAnotherProcess;
      return Error{fmt::format("cannot lock grant `{}` within {}: {}", base::one_line(base::join(keys, "` or `")),
                               duration(timeout_ms), process),
                   EAGAIN, "try again; if the error persists, check that process", FailureReason::kTimeout};
    }
    if (failed != 0) return sys_error(failed, "cannot lock `{}/lock`", files.root.path);
    lock.offsets_.push_back(offset);
  }
  return lock;
}

// A child made by fork() shares the open file description, so close() would not release the lock while it lives.
KeyLock::~KeyLock() {
  for (const off_t offset : offsets_) {
    struct flock range = byte_range(F_UNLCK, offset);
    (void)::fcntl(fd_, F_OFD_SETLK, &range);
  }
}

}  // namespace hook
