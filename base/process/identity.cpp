#include "base/process/identity.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace base {
namespace {

// Fields of /proc/PID/stat (proc(5)), counted from the state, which is field 3 and the first one after the command's
// name.
constexpr std::size_t kState = 0;
constexpr std::size_t kParent = 1;
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStartTime = 19;

struct Stat {
  char state = '?';
  pid_t parent = 0;
  long threads = 0;
  std::uint64_t start_time = 0;
};

std::optional<Stat> parse_stat(std::string_view text) {
  // The process chooses its name, even ") Z 1", so the last parenthesis of the text ends the name.
  const std::size_t end = text.rfind(')');
  if (end == std::string_view::npos) return std::nullopt;
  const auto fields = split(trim(text.substr(end + 1)), ' ');
  if (fields.size() <= kStartTime || fields[kState].size() != 1) return std::nullopt;
  const auto parent = parse_number<pid_t>(fields[kParent]);
  const auto threads = parse_number<long>(fields[kThreads]);
  const auto start_time = parse_number<std::uint64_t>(fields[kStartTime]);
  if (!parent || !threads || !start_time) return std::nullopt;
  return Stat{.state = fields[kState][0], .parent = *parent, .threads = *threads, .start_time = *start_time};
}

bool has_first_thread_ended(const Stat& stat) {
  return stat.state == 'Z' || stat.state == 'X' || stat.state == 'x';
}

Error no_procfs() {
  return Error{
      .message = "cannot read processes: `/proc` is not procfs", .code = ENODEV, .hint = "mount procfs at /proc"};
}

// Returns ESRCH only if the process is proven not to exist. A missing file proves it only in procfs. If a process ends
// between open(2) and read(2), the kernel returns ESRCH (proc_single_show() of fs/proc/base.c).
Result<Stat> read_stat(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  const auto failed = [&](int code) { return sys_error(code, "cannot read process `{}`", pid); };
  if (pid <= 0) return failed(ESRCH);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  const int opened = fd.ok() || errno == ENOENT ? 0 : errno;
  if (opened != 0) return failed(opened);
  struct statfs system {};
  if ((fd.ok() ? ::fstatfs(fd.get(), &system) : ::statfs("/proc", &system)) != 0) return failed(errno);
  if (system.f_type != PROC_SUPER_MAGIC) return no_procfs();
  if (!fd.ok()) return failed(ESRCH);
  char buffer[2048] RDMA_INIT_UNSET;
  const ssize_t count = TEMP_FAILURE_RETRY(::read(fd.get(), buffer, sizeof buffer));
  if (count < 0) return failed(errno);
  const auto stat = parse_stat(std::string_view(buffer, static_cast<std::size_t>(count)));
  return stat ? Result<Stat>(*stat) : make_error("cannot parse `{}`: unexpected format", path);
}

}  // namespace

std::optional<std::uint64_t> start_time_in(std::string_view stat) {
  const auto parsed = parse_stat(stat);
  return parsed ? std::optional(parsed->start_time) : std::nullopt;
}

Result<ProcessIdentity> identify(pid_t pid) {
  const Stat stat = TRY(read_stat(pid));
  return ProcessIdentity{.pid = pid, .start_time = stat.start_time};
}

Result<ProcessIdentity> identify_self() {
  thread_local ProcessIdentity self;
  const pid_t pid = ::getpid();
  if (self.pid != pid) self = TRY(identify(pid));  // at the first call, and at the first call after fork(2)
  return self;
}

bool is_above_me(const ProcessIdentity& process) {
  for (pid_t pid = ::getpid();;) {
    const auto stat = read_stat(pid);
    if (!stat || pid == process.pid) return stat && stat->start_time == process.start_time;
    pid = stat->parent;
  }
}

Result<Presence> read_presence(const ProcessIdentity& process) {
  const auto stat = read_stat(process.pid);
  if (!stat) return stat.error().code == ESRCH ? Result<Presence>(Presence::kAbsent) : stat.error();
  if (stat->start_time != process.start_time) return Presence::kAbsent;
  return has_first_thread_ended(*stat) && stat->threads <= 1 ? Presence::kAbsent : Presence::kPresent;
}

bool last_threads_end_within(const ProcessIdentity& process, std::chrono::milliseconds time) {
  const auto end_of_threads = [&] {
    const auto stat = read_stat(process.pid);
    if (!stat) return stat.error().code;
    if (stat->start_time != process.start_time) return ESRCH;
    if (!has_first_thread_ended(*stat)) return EBUSY;
    return stat->threads <= 1 ? ESRCH : EAGAIN;
  };
  return acquire(end_of_threads, time, {}) == ESRCH;
}

}  // namespace base
