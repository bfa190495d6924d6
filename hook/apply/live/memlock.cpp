#include "hook/apply/live/memlock.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "hook/plan/memlock_text.hpp"

namespace hook {
namespace {

using fabric::sys_error;

static_assert(RLIM_INFINITY == UINT64_MAX);

constexpr const char* kRemedy =
    "set LimitMEMLOCK=infinity for the engine's service, or raise the limit in the engine's options";

}  // namespace

fabric::Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes) {
  rlimit now{};
  if (prlimit(pid, RLIMIT_MEMLOCK, nullptr, &now) != 0) {
    if (errno != EPERM) return sys_error(errno, "cannot read RLIMIT_MEMLOCK of the process {}", pid);
    return std::optional<std::string>(
        fmt::format("cannot read or set RLIMIT_MEMLOCK of the container without CAP_SYS_RESOURCE: {}", kRemedy));
  }
  if (now.rlim_cur >= bytes && now.rlim_max >= bytes) return std::optional<std::string>();
  const rlimit wanted{std::max<rlim_t>(now.rlim_cur, bytes), std::max<rlim_t>(now.rlim_max, bytes)};
  if (prlimit(pid, RLIMIT_MEMLOCK, &wanted, nullptr) == 0) return std::optional<std::string>();
  if (errno != EPERM) {
    return sys_error(errno, "cannot set RLIMIT_MEMLOCK of the process {} to {}", pid, memlock_text(bytes));
  }
  const rlimit most{std::min<rlim_t>(wanted.rlim_cur, now.rlim_max), now.rlim_max};
  const bool raised = prlimit(pid, RLIMIT_MEMLOCK, &most, nullptr) == 0;
  return std::optional<std::string>(
      fmt::format("cannot raise RLIMIT_MEMLOCK of the container to {} without CAP_SYS_RESOURCE, it is {}: {}",
                  memlock_text(bytes), memlock_text(raised ? most.rlim_cur : now.rlim_cur), kRemedy));
}

}  // namespace hook
