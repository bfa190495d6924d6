#include "shim/runtime/run.hpp"

#include <unistd.h>

#include <exception>
#include <span>
#include <utility>

#include "shim/runtime/choose_runtime.hpp"
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

void print(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

// For a container that is about to be made.
Result<void> prepare_new(const Behind& behind, const Settings& settings, const GrantInSpec& grant,
                         const hook::ProcessIdentity& self, const RuntimeLog& log) {
  if (behind.invocation.action == Action::kStart) {
    TRY_VOID(prepare_start(behind, settings, grant, self, log));
  } else {
    TRY_VOID(prepare_restore(behind, settings, grant, self, log));
  }
  if (const std::string warning = TRY(note_runtime(behind, settings, self)); !warning.empty()) log.warning(warning);
  return {};
}

Result<void> prepare(const Behind& behind, const std::string& ledger, const Settings& settings,
                     const GrantInSpec& grant, const hook::ProcessIdentity& self, const RuntimeLog& log) try {
  const IgnoredSignals ignored;
  switch (behind.invocation.action) {
    case Action::kPass:
      break;
    case Action::kStart:
    case Action::kRestore:
      return prepare_new(behind, settings, grant, self, log);
    case Action::kExec:
      prepare_exec(behind.invocation, behind.dialect, self, log);
      break;
    case Action::kDelete:
      note_delete(behind.invocation, ledger);
      break;
    case Action::kVersion:
      print(kVersionLine);
      break;
    case Action::kHelp:
      print(kHelpLine);
      break;
  }
  return {};
} catch (const std::exception& error) {
  // Nothing of ours is thrown on purpose, but bad_alloc can be
  return Error{error.what(), 0, {}};
}

}  // namespace

int run(char* const* argv, const std::string& ledger, const ReadSettings& read, const GrantInSpec& grant) {
  const auto held = hold_standard_descriptors();
  // The runtime comes first: its kind tells how to read the command line, and that tells where errors go. A loop is
  // refused before anything is booked.
  const auto arguments = arguments_of(argv);
  Settings settings;
  Behind behind{{}, parse_invocation(arguments, Dialect::kRunc)};
  const auto fail = [&](const Error& error) {
    RuntimeLog(behind.invocation, behind.dialect).error(error);
    return kExitFailure;
  };
  auto made = behind_container(arguments, ledger);
  if (!made) return fail(made.error());
  std::string warning;
  if (*made) {
    behind = **std::move(made);
  } else {
    settings = read();
    auto configured = configured_runtime(settings);
    if (!configured) return fail(configured.error());
    const Dialect dialect = dialect_of(configured->runtime);
    behind = {std::move(configured->runtime), parse_invocation(arguments, dialect), dialect};
    warning = std::move(configured->warning);
  }
  const RuntimeLog log(behind.invocation, behind.dialect);
  if (!warning.empty()) log.warning(warning);
  const auto self = hook::identify(::getpid());
  if (!self) return fail(self.error());
  if (const auto no_loop = refuse_loop(*self); !no_loop) return fail(no_loop.error());
  const auto prepared = prepare(behind, ledger, settings, grant, *self, log);
  if (!prepared) return fail(prepared.error());
  const Error failed = become(behind.runtime, argv, *self);
  forget_note(behind.invocation, ledger);
  return fail(failed);
}

}  // namespace shim
