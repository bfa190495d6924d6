#include "shim/nri/end_container.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace shim {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;

// First the descriptor, then the look at whose process it is: from then on the number cannot become another's.
Result<void> end_container(const std::string& id, pid_t pid) {
  if (pid <= 0 || id.empty()) return make_error("the runtime did not say which process it is");
  const fabric::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.ok()) {
    if (errno == ESRCH) return {};
    return sys_error(errno, "process {}", pid);
  }
  // Runtimes name the cgroup after the container, some with a prefix and `.scope`.
  // This /proc, whatever --root says: the number is one of this PID namespace.
  const auto cgroups = fabric::sysfs::read_file(fmt::format("/proc/{}/cgroup", pid), std::size_t{64} << 10);
  if (fabric::value_or(cgroups, std::string()).find(id) == std::string::npos)
    return make_error("process {} is not in a cgroup of the container `{}`", pid, id);
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH)
    return sys_error(errno, "kill process {} of the container `{}`", pid, id);
  return {};
}

}  // namespace shim
