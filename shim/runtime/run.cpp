#include "shim/runtime/run.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <span>

#include "shim/runtime/find_runtime.hpp"
#include "shim/runtime/inherited.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/prepare.hpp"
#include "shim/runtime/runtime_log.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

constexpr int kExitFailure = 1;

constexpr std::string_view kVersionLine = "rdma-runtime " RDMA_INIT_VERSION "\n";
constexpr std::string_view kHelpLine =
    "rdma-runtime " RDMA_INIT_VERSION
    ": gives containers their RDMA devices at create and run, and passes every command on to this runtime:\n\n";

std::span<char* const> arguments_of(char* const* argv) {
  std::size_t count = 0;
  while (argv[count])
    ++count;
  return {argv + (count > 0 ? 1 : 0), count > 0 ? count - 1 : 0};
}

Result<std::string> runtime_behind(const Settings& settings) {
  const char* const path = std::getenv("PATH");
  return find_runtime(settings.runtimes, path ? path : "", TRY(own_id()));
}

void print(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

Result<void> prepare(const Invocation& invocation, Dialect dialect, const Settings& settings, const GrantInSpec& grant,
                     const hook::ProcessIdentity& self, const RuntimeLog& log) try {
  const IgnoredSignals ignored;
  if (invocation.action == Action::kStart) return prepare_start(invocation, dialect, settings, grant, self, log);
  if (invocation.action == Action::kExec) prepare_exec(invocation, dialect, self, log);
  if (invocation.action == Action::kVersion) print(kVersionLine);
  if (invocation.action == Action::kHelp) print(kHelpLine);
  return {};
} catch (const std::exception& error) {  // nothing is thrown on purpose, but bad_alloc can be
  return Error{error.what(), 0, {}};
}

}  // namespace

int run(char* const* argv, const Settings& settings, const GrantInSpec& grant) {
  const auto held = hold_standard_descriptors();
  // The runtime comes first: its kind tells how to read the command line, and that tells where errors go. A loop is
  // refused before anything is booked.
  const auto runtime = runtime_behind(settings);
  const Dialect dialect = runtime ? dialect_of(*runtime) : Dialect::kRunc;
  const Invocation invocation = parse_invocation(arguments_of(argv), dialect);
  const RuntimeLog log(invocation, dialect);
  const auto fail = [&](const Error& error) {
    log.error(error);
    return kExitFailure;
  };
  if (!runtime) return fail(runtime.error());
  const auto self = hook::identify(::getpid());
  if (!self) return fail(self.error());
  if (const auto no_loop = refuse_loop(*self); !no_loop) return fail(no_loop.error());
  const auto prepared = prepare(invocation, dialect, settings, grant, *self, log);
  if (!prepared) return fail(prepared.error());
  return fail(become(*runtime, argv, *self));
}

}  // namespace shim
