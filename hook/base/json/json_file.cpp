// Text from files and pipes, bounded in size and time.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

std::int64_t now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1000000;
}

}  // namespace

Result<std::string> read_text_fd(int fd, std::size_t limit, int timeout_ms, std::string_view what) {
  std::string text;
  const std::int64_t deadline = now_ms() + timeout_ms;
  char buffer[16384];
  while (true) {
    if (timeout_ms >= 0) {
      pollfd waiting{fd, POLLIN, 0};
      const std::int64_t left = deadline - now_ms();
      const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return make_error("{} does not end within {} ms", what, timeout_ms);
    }
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || (errno == EAGAIN && timeout_ms >= 0))) continue;
    if (count < 0) return fabric::sys_error(errno, "cannot read {}", what);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > limit) return Error{fmt::format("{} is longer than {} bytes", what, limit), EFBIG, {}};
  }
}

Result<std::string> read_text_file(const std::string& path, const JsonLimits& limits) {
  const fabric::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.ok()) return fabric::sys_error(errno, "open `{}`", fabric::printable(path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fabric::sys_error(errno, "stat `{}`", fabric::printable(path));
  if (!S_ISREG(status.st_mode)) return make_error("`{}` is no regular file", fabric::printable(path));
  return read_text_fd(fd.get(), limits.bytes, -1, "`" + fabric::printable(path) + "`");
}

}  // namespace hook
