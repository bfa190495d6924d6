#include "shim/runtime/state_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/json/json_fwd.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {
namespace {

using Kind = hook::RuntimeState::Kind;

constexpr base::JsonLimits kStateLimits = {.bytes = std::size_t{4} << 20};

// Returns true for a single path component: both runtimes reject any other id.
bool is_component(const std::string& id) {
  return !id.empty() && id != "." && id != ".." && id.find('/') == std::string::npos;
}

// Returns the root that runc or crun uses without --root.
std::string default_root(Dialect dialect) {
  const char* const name = dialect == Dialect::kCrun ? "/crun" : "/runc";
  const char* const own = ::geteuid() == 0 ? nullptr : std::getenv("XDG_RUNTIME_DIR");
  return std::string(own ? own : "/run") + name;
}

// Returns the file name of a program. If the path is a symbolic link, as update-alternatives(1) makes them, returns the
// name of its target: /usr/bin/runc may be a link to crun.
std::string program_name(const std::string& path) {
  char target[PATH_MAX];
  std::error_code failed;
  const bool is_link = ::readlink(path.c_str(), target, sizeof target) >= 0;
  const auto program = is_link ? std::filesystem::canonical(path, failed) : std::filesystem::path(path);
  return failed ? "" : program.filename().string();
}

std::optional<Kind> kind_of(const std::string& runtime) {
  const std::string name = program_name(runtime);
  if (name == "runc") return Kind::kRunc;
  return name == "crun" ? std::optional(Kind::kCrun) : std::nullopt;
}

}  // namespace

std::string absolute_bundle(const Invocation& invocation) {
  const std::string& bundle = invocation.bundle;
  if (bundle.starts_with('/')) return bundle;
  std::error_code failed;
  return std::filesystem::absolute(bundle.empty() ? "." : bundle, failed).string();
}

std::string state_directory(const Invocation& invocation) {
  const std::string root = invocation.root.empty() ? default_root(invocation.dialect) : invocation.root;
  return is_component(invocation.id) ? root + "/" + invocation.id : "";
}

std::optional<std::string> find_bundle(const Invocation& invocation) {
  const std::string directory = state_directory(invocation);
  if (directory.empty()) return std::nullopt;
  for (const auto& [name, kind] : {std::pair("state.json", Kind::kRunc), std::pair("status", Kind::kCrun)}) {
    const auto state = SpecFile::open(directory, name, kStateLimits);
    if (state && *state) return hook::bundle_of_state(kind, (*state)->text());
  }
  return std::nullopt;
}

std::optional<hook::RuntimeState> runtime_state_of(const Invocation& invocation, bool make_root) {
  const auto kind = kind_of(invocation.runtime);
  const std::string& passed = invocation.root;
  // If XDG_RUNTIME_DIR is set, the default root is not predictable: runc and crun have different rules about the owner
  // of that directory. An empty value, which Podman sets for root, counts as unset for both (tried: runc 1.1.5,
  // crun 1.8.1).
  const char* const own = std::getenv("XDG_RUNTIME_DIR");
  const bool is_default = passed.empty() && (!own || *own == '\0');
  if (!kind || (kind == Kind::kCrun) != (invocation.dialect == Dialect::kCrun)) return std::nullopt;
  // A relative --root depends on the working directory, and the hook later runs in another directory than the runtime.
  if (!passed.starts_with('/') && !is_default) return std::nullopt;
  if (state_directory(invocation).empty()) return std::nullopt;
  const std::string root = is_default ? default_root(invocation.dialect) : passed;
  if (make_root) ::mkdir(root.c_str(), S_IRWXU);  // identify_runtime_state() reports a failure
  auto state = hook::identify_runtime_state(*kind, root);
  return state ? std::optional(*std::move(state)) : std::nullopt;
}

}  // namespace shim
