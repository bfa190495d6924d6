#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <functional>

#include "fabric/directory_names.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

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

// What the holder wrote into the lock file. It may be a moment old, so the message only quotes it.
std::string written_holder(int fd) {
  char buffer[32];
  const ssize_t count = ::pread(fd, buffer, sizeof buffer, 0);
  if (count <= 0) return {};
  const auto text = fabric::trim(std::string_view(buffer, static_cast<std::size_t>(count)));
  return fabric::parse_number<pid_t>(text) ? fmt::format("; its lock names process {}", text) : std::string();
}

// FNV-1a, 62 bits: an offset must not be negative, nor offset + 1 overflow.
off_t key_offset(std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : key) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return static_cast<off_t>(hash >> 2);
}

}  // namespace

Result<std::vector<std::string>> list_names(const LedgerDirectory& directory) {
  std::vector<std::string> names;
  const bool read = fabric::each_name(directory.fd.get(), [&](std::string_view name) {
    names.emplace_back(name);
    return true;
  });
  if (!read) return sys_error(errno, "cannot list `{}`", directory.path);
  return names;
}

Result<UniqueFd> lock_hca(const LedgerDirectory& hca, const std::string& name, const LedgerFiles& files,
                          int timeout_ms) {
  UniqueFd fd(::openat(hca.fd.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}/lock`", hca.path);
  const int failed = acquire([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }, timeout_ms);
  if (failed == EAGAIN) {
    return Error{.message = fmt::format("cannot lock HCA `{}` within {} ms: another process holds it{}", name,
                                        timeout_ms, written_holder(fd.get())),
                 .code = EAGAIN,
                 .hint = "try again; if it stays so, look what that process waits for"};
  }
  if (failed != 0) return sys_error(failed, "cannot lock HCA `{}`", name);
  // For that message alone, hence no error. Blanks wipe what is left of a longer number.
  const std::string text = fmt::format("{:<11}\n", files.self.pid);
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
      return Error{.message = fmt::format("cannot lock grant `{}` within {} ms: another process changes it",
                                          fabric::printable(fabric::join(keys, "` or `")), timeout_ms),
                   .code = EAGAIN,
                   .hint = "try again"};
    }
    if (failed != 0) return sys_error(failed, "cannot lock `{}/lock`", files.root.path);
  }
  return KeyLock(std::move(fd));
}

}  // namespace hook
