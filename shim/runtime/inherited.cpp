#include "shim/runtime/inherited.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "fabric/text.hpp"

namespace shim {
namespace {

std::string guard_value(const hook::ProcessIdentity& self) {
  return fmt::format("{}.{}", self.pid, self.start_time);
}

}  // namespace

IgnoredSignals::IgnoredSignals() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &pipe_);
  ::sigaction(SIGXFSZ, &ignore, &file_size_);
}

IgnoredSignals::~IgnoredSignals() {
  ::sigaction(SIGPIPE, &pipe_, nullptr);
  ::sigaction(SIGXFSZ, &file_size_, nullptr);
}

std::vector<fabric::UniqueFd> hold_standard_descriptors() {
  std::vector<fabric::UniqueFd> held;
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one.
    fabric::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.ok()) held.push_back(std::move(null));
  }
  return held;
}

fabric::Result<void> refuse_loop(const hook::ProcessIdentity& self) {
  const char* const guard = std::getenv(kGuardVariable);
  if (!guard || guard != guard_value(self)) return {};
  return fabric::Error{"the runtime that rdma-runtime calls leads back to rdma-runtime", ELOOP,
                       R"(set "runtime": {"path": ...} in /etc/rdma-init/config.json to a runtime that is no wrapper, )"
                       "or have that wrapper call the runtime by its absolute path"};
}

fabric::Error become(const std::string& runtime, char* const* argv, const hook::ProcessIdentity& self) {
  std::string path = runtime;
  std::vector<char*> arguments = {path.data()};
  for (char* const* argument = *argv ? argv + 1 : argv; *argument; ++argument)
    arguments.push_back(*argument);
  arguments.push_back(nullptr);
  const std::string name = std::string(kGuardVariable) + "=";
  std::string guard = name + guard_value(self);
  std::vector<char*> environment;
  for (char* const* variable = environ; *variable; ++variable) {
    if (!std::string_view(*variable).starts_with(name)) environment.push_back(*variable);
  }
  environment.push_back(guard.data());
  environment.push_back(nullptr);
  ::execve(path.c_str(), arguments.data(), environment.data());
  return fabric::sys_error(errno, "cannot start the runtime `{}`", fabric::printable(runtime));
}

}  // namespace shim
