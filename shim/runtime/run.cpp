#include "shim/runtime/run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process/identity.hpp"
#include "base/process/sandbox.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "shim/runtime/choose_runtime.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/log.hpp"
#include "shim/runtime/prepare.hpp"

namespace shim {
namespace {

constexpr int kExitFailure = 1;

constexpr std::string_view kVersionLine = "rdma-runtime " RDMA_INIT_VERSION "\n";
constexpr std::string_view kHelpLine =
    "rdma-runtime " RDMA_INIT_VERSION
    ": adds RDMA devices to containers at create and run, and passes every command on to this runtime:\n\n";

std::span<char* const> arguments_of(char* const* argv) {
  std::size_t count = 0;
  while (argv[count])
    ++count;
  return {argv + (count > 0 ? 1 : 0), count > 0 ? count - 1 : 0};
}

void print(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

// Ignores SIGPIPE and SIGXFSZ during the edit, so that a closed pipe or a file size limit is an error of write(2) and
// does not kill the process. The destructor restores the caller's dispositions: ignored signals survive execve(2).
class IgnoredSignals {
 public:
  IgnoredSignals() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &pipe_);
    ::sigaction(SIGXFSZ, &ignore, &file_size_);
  }
  IgnoredSignals(const IgnoredSignals&) = delete;
  IgnoredSignals& operator=(const IgnoredSignals&) = delete;
  ~IgnoredSignals() {
    ::sigaction(SIGPIPE, &pipe_, nullptr);
    ::sigaction(SIGXFSZ, &file_size_, nullptr);
  }

 private:
  struct sigaction pipe_ {};
  struct sigaction file_size_ {};
};

// If the caller closed one of the descriptors 0 to 2, a file that is opened here would get its number and receive the
// messages to stderr. /dev/null occupies these numbers until execve(2) closes it.
std::vector<UniqueFd> hold_standard_descriptors() {
  std::vector<UniqueFd> held;
  if (base::has_standard_descriptors()) return held;
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open(2) returns the lowest free number, which is fd.
    UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.ok()) held.push_back(std::move(null));
  }
  return held;
}

// Environment variable with "PID.STARTTIME" of this process. execve(2) keeps PID and start time. A process that finds
// its own value has therefore executed a runtime before, and that runtime executed rdma-runtime again.
constexpr const char* kGuardVariable = "RDMA_RUNTIME_GUARD";

std::string guard_value(const base::ProcessIdentity& self) {
  return fmt::format("{}.{}", self.pid, self.start_time);
}

// Checks that the configured runtime did not execute rdma-runtime again.
Result<void> refuse_loop(const base::ProcessIdentity& self) {
  const char* const guard = std::getenv(kGuardVariable);
  if (!guard || guard != guard_value(self)) return {};
  return Error{
      "cannot start the runtime: it executes rdma-runtime again", ELOOP,
      R"(set "runtime": {"runtimes": [...]} in /etc/rdma-init/config.json to a runtime that is not a wrapper, )"
      "or let the wrapper execute the runtime by its absolute path"};
}

// Executes the runtime with argv[0] replaced by its path. The environment is the caller's plus the guard variable.
// Returns only on failure.
Error become(const std::string& runtime, char* const* argv, const base::ProcessIdentity& self) {
  std::string path = runtime;
  std::vector<char*> arguments = {path.data()};
  for (char* const* argument = *argv ? argv + 1 : argv; *argument; ++argument)
    arguments.push_back(*argument);
  arguments.push_back(nullptr);
  const std::string name = std::string(kGuardVariable) + "=";
  std::string guard = name + guard_value(self);
  std::vector<char*> environment;
  for (char* const* variable = environ; *variable; ++variable) {
    // A variable of this name in the caller's environment is left out: its value is stale or forged.
    if (!std::string_view(*variable).starts_with(name)) environment.push_back(*variable);
  }
  environment.push_back(guard.data());
  environment.push_back(nullptr);
  ::execve(path.c_str(), arguments.data(), environment.data());
  return sys_error(errno, "cannot start the runtime `{}`", base::printable(runtime));
}

Result<void> prepare(const Invocation& invocation, const std::string& ledger, const Settings& settings,
                     const base::ProcessIdentity& self, const RuntimeLog& log) try {
  // This object is destroyed before become(), so that the runtime gets the caller's signal dispositions.
  const IgnoredSignals ignored;
  switch (invocation.action) {
    case Action::kPass:
      break;
    case Action::kStart:
    case Action::kRestore:
      // If note_runtime() returns an error, this process ends. The grant is then stale, and a later call releases it.
      TRY_VOID(prepare_new(invocation, settings, self, log));
      if (const auto warning = TRY(note_runtime(invocation, settings, self)); !warning.empty()) log.warning(warning);
      break;
    case Action::kExec:
      prepare_exec(invocation, self, log);
      break;
    case Action::kDelete:
      note_delete(invocation, ledger);
      break;
    case Action::kVersion:
      print(kVersionLine);
      break;
    case Action::kHelp:
      print(kHelpLine);
      break;
  }
  return {};
} catch (const std::exception&) {
  // rdma-runtime itself throws nothing, but the standard library may throw bad_alloc.
  return base::error_of_exception();
}

}  // namespace

int run(char* const* argv, const std::string& ledger, const ReadSettings& read) {
  const auto held = hold_standard_descriptors();
  // The order of steps matters. The runtime's kind determines how to parse the command line, and the command line
  // determines the log file. refuse_loop() comes before HCAs are booked.
  const auto arguments = arguments_of(argv);
  Settings settings;
  Invocation invocation = parse_invocation(arguments, Dialect::kRunc);
  const auto fail = [&](const Error& error) {
    RuntimeLog(invocation).error(error);
    return kExitFailure;
  };
  auto made = runtime_of_container(arguments, ledger);
  if (!made) return fail(made.error());
  std::string warning;
  if (*made) {
    invocation = **std::move(made);
  } else {
    settings = read();
    auto configured = configured_runtime(settings);
    if (!configured) {
      // `rdma-hook doctor` runs `--version` and needs this line even if the configuration is invalid.
      if (invocation.action == Action::kVersion) print(kVersionLine);
      return fail(configured.error());
    }
    invocation = parse_invocation(arguments, dialect_of(configured->runtime));
    invocation.runtime = std::move(configured->runtime);
    warning = std::move(configured->warning);
  }
  const RuntimeLog log(invocation);
  if (!warning.empty()) log.warning(warning);
  const auto self = base::identify_self();
  if (!self) return fail(self.error());
  if (const auto no_loop = refuse_loop(*self); !no_loop) return fail(no_loop.error());
  const auto prepared = prepare(invocation, ledger, settings, *self, log);
  if (!prepared) return fail(prepared.error());
  const Error failed = become(invocation.runtime, argv, *self);
  // No runtime was executed, so there is no container to which the record of note_runtime() belongs.
  forget_note(invocation, ledger);
  return fail(failed);
}

}  // namespace shim
