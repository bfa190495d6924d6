#include "hook/base/process/process_identity.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {
namespace {

// Fields of proc(5) /proc/PID/stat, counted from the state, which is field 3 and the first after the command's name.
constexpr std::size_t kState = 0;
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStartTime = 19;

struct Stat {
  char state = '?';
  long threads = 0;
  std::uint64_t start_time = 0;
};

std::optional<Stat> parse_stat(std::string_view text) {
  // The name is whatever the process chose, ") Z 1" included: only the last parenthesis ends it.
  const std::size_t end = text.rfind(')');
  if (end == std::string_view::npos) return std::nullopt;
  const auto fields = fabric::split(fabric::trim(text.substr(end + 1)), ' ');
  if (fields.size() <= kStartTime || fields[kState].size() != 1) return std::nullopt;
  const auto threads = fabric::parse_number<long>(fields[kThreads]);
  const auto start_time = fabric::parse_number<std::uint64_t>(fields[kStartTime]);
  if (!threads || !start_time) return std::nullopt;
  return Stat{.state = fields[kState][0], .threads = *threads, .start_time = *start_time};
}

std::optional<Stat> read_stat(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  const fabric::UniqueFd fd(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct statfs system {};
  if (!fd.ok() || ::fstatfs(fd.get(), &system) != 0 || system.f_type != PROC_SUPER_MAGIC) return std::nullopt;
  char buffer[2048];
  ssize_t count = 0;
  do {
    count = ::read(fd.get(), buffer, sizeof buffer);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  return parse_stat(std::string_view(buffer, static_cast<std::size_t>(count)));
}

}  // namespace

std::optional<ProcessIdentity> identify(pid_t pid) {
  const auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  return ProcessIdentity{.pid = pid, .start_time = stat->start_time};
}

bool is_alive(const ProcessIdentity& process) {
  const auto stat = read_stat(process.pid);
  if (!stat || stat->start_time != process.start_time) return false;
  const bool ended = stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
  return !ended || stat->threads > 1;
}

}  // namespace hook
