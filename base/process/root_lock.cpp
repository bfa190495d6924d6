#include "base/process/root_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"

namespace base {
namespace {

constexpr LockPause kPause{std::chrono::milliseconds(20), std::chrono::milliseconds(20)};
constexpr const char* kOurPrograms = "rdma-";
constexpr std::size_t kLargestLocks = std::size_t{16} << 20;  // most bytes to read of /proc/locks

struct LockingProcess {
  std::string pid;
  std::string program;  // name of the executable file, or of the process if the file cannot be read; empty: unknown
  std::string user;     // the real user, which a set-user-ID program does not change; empty: the user cannot be read
};

// Returns whether one of the process's descriptors holds the flock(2) lock of this inode. /proc/PID/fdinfo/FD has the
// line "lock:\t1: FLOCK  ADVISORY  WRITE 123 08:02:4711 0 EOF" then (lock_get_status() of fs/locks.c, Linux 4.1). The
// device is not compared, because stat(2) reports another one than the kernel's for overlayfs and btrfs.
bool holds_lock(const std::string& pid, ino_t inode) {
  const std::string path = fmt::format("/proc/{}/fdinfo", pid);
  const auto directory = Directory::open(path);
  if (!directory) return false;
  const std::string end = fmt::format(":{} 0 EOF\n", inode);
  const auto descriptors = directory->list();
  return std::ranges::any_of(descriptors, [&](const std::string& fd) {
    const auto info = value_or(read_file(path + "/" + fd, kMostText), std::string());
    return info.find(" FLOCK ") != std::string::npos && info.find(end) != std::string::npos;
  });
}

// Returns the processes that took a flock(2) lock of this inode by /proc/locks, which any process can read: it has
// lines such as "1: FLOCK  ADVISORY  WRITE 123 08:02:4711 0 EOF". Descriptors of a process with more capabilities than
// this one cannot be read.
std::vector<std::string> takers_of_lock(ino_t inode) {
  constexpr std::size_t kPid = 4;  // position of the PID, counted from 0
  std::vector<std::string> pids;
  const auto locks = value_or(read_file("/proc/locks", kLargestLocks), std::string());
  const std::string end = fmt::format(":{} 0 EOF", inode);
  for (const std::string_view line : split(locks, '\n')) {
    std::vector<std::string_view> fields = split(line, ' ');
    std::erase(fields, std::string_view());
    if (fields.size() > kPid && fields[1] == "FLOCK" && line.ends_with(end)) pids.emplace_back(fields[kPid]);
  }
  return pids;
}

LockingProcess describe_process(const std::string& pid) {
  LockingProcess process{pid, {}, {}};
  std::error_code failed;
  const auto program = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), failed);
  // The name of the process has at most 15 characters, and the process can change it. For a process of the caller's
  // user that is no matter: it could execute any program.
  const auto name = read_attribute(fmt::format("/proc/{}/comm", pid));
  process.program = failed ? value_or(name, std::string()) : program.filename().string();
  const auto status = value_or(read_file(fmt::format("/proc/{}/status", pid), kMostText), std::string());
  const std::size_t at = status.find("\nUid:\t");
  if (at != std::string::npos) {
    const std::string_view uids = std::string_view(status).substr(at + 6);
    process.user = uids.substr(0, uids.find('\t'));
  }
  return process;
}

// Returns the first process that holds the lock and passes the test.
std::optional<LockingProcess> find_locking_process(int fd, const std::function<bool(const LockingProcess&)>& test) {
  struct stat status {};
  const auto proc = Directory::open("/proc");
  if (!proc || ::fstat(fd, &status) != 0) return std::nullopt;
  for (const std::string& name : proc->list()) {
    if (!parse_number<pid_t>(name) || !holds_lock(name, status.st_ino)) continue;
    if (LockingProcess process = describe_process(name); test(process)) return process;
  }
  for (const std::string& pid : takers_of_lock(status.st_ino))
    if (LockingProcess process = describe_process(pid); test(process)) return process;
  return std::nullopt;
}

std::string to_text(const LockingProcess& process) {
  return fmt::format("process {} ({}, user {})", process.pid,
                     process.program.empty() ? "?" : printable(process.program),
                     process.user.empty() ? "?" : process.user);
}

// A stranger cannot be a process of this user that executes a program of this name: the real user stays the stranger's
// in a set-user-ID program.
bool is_our_program(const LockingProcess& process) {
  return process.program.starts_with(kOurPrograms) && process.user == std::to_string(::geteuid());
}

bool is_same_file(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace

bool is_private(const struct stat& status) {
  const bool group_opens = status.st_gid != 0 && (status.st_mode & S_IRGRP) != 0;
  const bool others_change = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return status.st_uid == ::geteuid() && !group_opens && !others_change && (status.st_mode & S_IROTH) == 0;
}

int acquire(const std::function<int()>& attempt, std::chrono::milliseconds patience, LockPause pause) {
  const Deadline deadline = from_now(patience);
  for (;;) {
    if (const int code = attempt(); code != EAGAIN && code != EINTR) return code;
    if (std::chrono::steady_clock::now() >= deadline) return EAGAIN;
    const timespec wait{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(pause.first).count()};
    ::nanosleep(&wait, nullptr);
    pause.first = std::min(pause.first * 2, pause.longest);
  }
}

int flock_within(int fd, int operation, std::chrono::milliseconds patience, LockPause pause) {
  return acquire([=] { return ::flock(fd, operation | LOCK_NB) == 0 ? 0 : errno; }, patience, pause);
}

Result<bool> lock_within(int fd, std::chrono::milliseconds patience) {
  const int failed = flock_within(fd, LOCK_EX, patience, kPause);
  if (failed != 0 && failed != EAGAIN) return sys_error(failed, "lock");
  return failed == 0;
}

std::string locking_process(int fd) {
  const auto process = find_locking_process(fd, [](const LockingProcess&) { return true; });
  return process ? to_text(*process) : "an unknown process";
}

Result<OldLock> take_old_lock(int fd, std::string_view path, std::chrono::milliseconds patience) {
  const auto try_for = [&](std::chrono::milliseconds time) -> Result<bool> {
    auto locked = lock_within(fd, time);
    if (locked.has_value()) return locked;
    return wrap(std::move(locked).error(), fmt::format("`{}`", printable(path)));
  };
  if (TRY(try_for(std::chrono::milliseconds(0)))) return OldLock{true, {}};
  // A stranger that is seen can hold the lock for ever, so waiting would not help.
  const auto is_stranger = [](const LockingProcess& process) { return !is_our_program(process); };
  auto ours = find_locking_process(fd, is_our_program);
  if (!ours)
    if (const auto stranger = find_locking_process(fd, is_stranger)) return OldLock{false, to_text(*stranger)};
  if (TRY(try_for(patience))) return OldLock{true, {}};
  ours = find_locking_process(fd, is_our_program);
  if (!ours) return OldLock{false, locking_process(fd)};
  return Error{fmt::format("{} has locked `{}`", to_text(*ours), printable(path)), EAGAIN,
               "try again when that process has ended"};
}

Result<LockFile> LockFile::take(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    struct stat opened {};
    struct stat named {};
    if (!fd.ok() || ::fstat(fd.get(), &opened) != 0) {
      Error error = sys_error(errno, "make the lock file `{}`", printable(path));
      if (error.code == ELOOP || error.code == EISDIR) error.hint = "remove it";
      return error;
    }
    if (!S_ISREG(opened.st_mode) || !is_private(opened))
      return Error{fmt::format("`{}` is not a file that only root can open", printable(path)), EPERM, "remove it"};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const auto locked = lock_within(fd.get(), std::max(left, std::chrono::milliseconds(0)));
    if (!locked.has_value()) return wrap(locked.error(), fmt::format("`{}`", printable(path)));
    if (!*locked)
      return Error{fmt::format("{} has locked `{}`", locking_process(fd.get()), printable(path)), EAGAIN,
                   "try again; if the error persists, check that process"};
    // The process that held the lock removed the file before it released the lock. Then this descriptor is of a file
    // without a name, and another process can have made and locked a new file.
    if (::lstat(path.c_str(), &named) == 0 && is_same_file(opened, named)) return LockFile(path, std::move(fd));
  }
}

LockFile::~LockFile() {
  if (fd_.ok()) ::unlink(path_.c_str());
}

}  // namespace base
