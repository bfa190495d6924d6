#include "shim/runtime/choose_runtime.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/runtime_records.hpp"
#include "shim/runtime/state_directory.hpp"

namespace shim {
namespace {

constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kRemedy = R"(set "runtime": {"runtimes": ["/usr/sbin/runc"]} in /etc/rdma-init/config.json)";

std::string record_key(const Invocation& invocation) {
  return hook::container_owner(invocation.id, invocation.root).key;
}

bool makes_container(const Invocation& invocation) {
  return invocation.action == Action::kStart || invocation.action == Action::kRestore;
}

// Returns RuntimeRecord::container_path, a path that exists at least as long as the container: for runc and crun the
// directory that they make for each container in their root, for runtimes with an unknown state layout the bundle.
std::string container_path_of(const Invocation& invocation) {
  const bool is_known = invocation.dialect == Dialect::kCrun || invocation.runtime.ends_with("/runc");
  const std::string state = is_known ? state_directory(invocation) : "";
  return state.starts_with('/') ? state : absolute_bundle(invocation);
}

}  // namespace

Result<FileId> own_id() {
  struct stat status {};
  if (::stat("/proc/self/exe", &status) != 0) {
    Error error = sys_error(errno, "stat `/proc/self/exe`");
    error.hint = "mount procfs at /proc";
    return error;
  }
  return FileId{status.st_dev, status.st_ino};
}

Result<std::string> find_runtime(const std::vector<std::string>& configured, std::string_view path,
                                 const FileId& self) {
  bool met_self = false;
  const auto is_usable = [&](const std::string& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
    // Device and inode are compared, because rdma-runtime may be installed under the name runc, or behind a link.
    const bool is_self = FileId{status.st_dev, status.st_ino} == self;
    met_self = met_self || is_self;
    // With AT_EACCESS, faccessat(2) checks the effective IDs, as execve(2) does.
    return !is_self && ::faccessat(AT_FDCWD, file.c_str(), X_OK, AT_EACCESS) == 0;
  };
  // kUsualPath comes last: the administrator's PATH has priority.
  const std::string directories = fmt::format("{}:{}", path, kUsualPath);
  for (const std::string& runtime : configured) {
    if (runtime.starts_with('/')) {
      if (is_usable(runtime)) return runtime;
      continue;
    }
    if (runtime.empty() || runtime.find('/') != std::string::npos)
      return Error{fmt::format("runtime `{}`: expected a name or an absolute path", printable(runtime)), EINVAL,
                   kRemedy};
    for (const std::string_view directory : base::split(directories, ':')) {
      std::string file = fmt::format("{}/{}", directory, runtime);
      if (directory.starts_with('/') && is_usable(file)) return file;
    }
  }
  return Error{fmt::format("no runtime found: searched for `{}`{}", base::join(configured, "`, `"),
                           met_self ? ", and found only rdma-runtime itself" : ""),
               ENOENT, kRemedy};
}

Result<std::optional<Invocation>> runtime_of_container(std::span<char* const> arguments, const std::string& ledger) {
  std::string asked;
  // The syntax of the command line depends on the runtime, and the runtime is found by the container id in the command
  // line. So both syntaxes are tried, and a record counts only if its runtime has the syntax that was tried.
  for (const Dialect dialect : {Dialect::kRunc, Dialect::kCrun}) {
    Invocation invocation = parse_invocation(arguments, dialect);
    if (invocation.id.empty() || makes_container(invocation)) continue;
    const std::string key = record_key(invocation);
    if (key == asked) continue;
    const auto record = TRY(hook::recall_runtime(ledger, key));
    if (!record) {
      asked = key;
    } else if (dialect_of(record->runtime) == dialect) {
      invocation.runtime = record->runtime;
      return std::optional(std::move(invocation));
    }
  }
  return std::optional<Invocation>();
}

Result<Configured> configured_runtime(Settings& settings) {
  if (settings.admin) {
    const char* const path = std::getenv("PATH");
    const FileId self = TRY(own_id());
    return Configured{TRY(find_runtime(settings.runtimes, path ? path : "", self)), {}};
  }
  // If the administrator's configuration has an error, containers start with the runtime of the last valid
  // configuration.
  const auto last = TRY(hook::last_choice(settings.node.ledger));
  if (!last)
    return base::wrap(settings.admin.error(),
                      "no runtime is known: no configuration was readable since the node started");
  settings.engine = last->engine;
  return Configured{last->runtime, fmt::format("{}: using runtime `{}` from the last readable configuration",
                                               settings.admin.error().message, printable(last->runtime))};
}

Result<std::string> note_runtime(const Invocation& invocation, const Settings& settings,
                                 const base::ProcessIdentity& self) {
  const std::string& ledger = settings.node.ledger;
  const std::string key = record_key(invocation);
  auto noted = settings.admin ? hook::keep_choice(ledger, {settings.engine, invocation.runtime}) : Result<void>();
  if (noted) noted = hook::remember_runtime(ledger, key, {invocation.runtime, self, container_path_of(invocation)});
  // After `run` and `restore` the engine may call no `delete`, so the next sweep_runtimes() must check this container.
  if (noted && !invocation.is_create) hook::mark_ending(ledger, key);
  if (noted) return std::string();
  if (noted.error().code == EEXIST) return noted.error();
  return fmt::format(
      "{}: later commands for container `{}` use the runtime that /etc/rdma-init/config.json names at that time",
      noted.error().message, printable(invocation.id));
}

void forget_note(const Invocation& invocation, const std::string& ledger) {
  if (makes_container(invocation)) hook::forget_runtime(ledger, record_key(invocation));
}

void note_delete(const Invocation& invocation, const std::string& ledger) {
  hook::mark_ending(ledger, record_key(invocation));
  hook::sweep_runtimes(ledger, hook::SweptRuntimes::kEnding);
}

}  // namespace shim
