#include "hook/ledger/lock_holder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

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

}  // namespace

std::string lock_text(const ProcessIdentity& holder, std::string_view container) {
  return fmt::format("{} {} {}\n", holder.pid, holder.start_time, container);
}

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

}  // namespace hook
