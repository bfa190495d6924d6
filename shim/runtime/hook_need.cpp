#include "shim/runtime/hook_need.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "shim/runtime/find_bundle.hpp"

namespace shim {
namespace {

using Kind = hook::RuntimeState::Kind;

// A link of another name, as for alternatives, is not the program's.
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

HookNeed hook_need(const hook::Asking& asking, const HookCommand& command, Dialect dialect) {
  if (has_create_hook(command, *asking.document)) return HookNeed::kThereAlready;
  if (hook::may_get_rails(asking)) return HookNeed::kRails;
  if (dialect == Dialect::kCrun && hook::limits_rdma(asking.admin)) return HookNeed::kRdmaLimits;
  if (hook::needs_own_view(asking)) return HookNeed::kOwnView;
  return asking.spec.has_own_pidns ? HookNeed::kNone : HookNeed::kSharedPids;
}

std::optional<hook::RuntimeState> state_behind(const Behind& behind, bool make_root) {
  const auto kind = kind_of(behind.runtime);
  const std::string& given = behind.invocation.root;
  // Both have rules of their own for whose directory it is where this is set. Empty, as Podman sets it for root, it is
  // none for either (tried: runc 1.1.5, crun 1.8.1).
  const char* const own = std::getenv("XDG_RUNTIME_DIR");
  const bool is_default = given.empty() && (!own || *own == '\0');
  if (!kind || (kind == Kind::kCrun) != (behind.dialect == Dialect::kCrun)) return std::nullopt;
  if (!given.starts_with('/') && !is_default) return std::nullopt;
  if (state_directory(given, behind.invocation.id, behind.dialect).empty()) return std::nullopt;
  const std::string root = is_default ? default_root(behind.dialect) : given;
  if (make_root) ::mkdir(root.c_str(), S_IRWXU);  // that there is none, the next call says
  auto state = hook::identify_runtime_state(*kind, root);
  return state ? std::optional(*std::move(state)) : std::nullopt;
}

}  // namespace shim
