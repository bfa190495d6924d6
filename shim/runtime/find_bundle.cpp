#include "shim/runtime/find_bundle.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "hook/base/json/json_fwd.hpp"
#include "hook/ledger/runtime_state.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {
namespace {

using Kind = hook::RuntimeState::Kind;

constexpr hook::JsonLimits kStateLimits = {.bytes = std::size_t{4} << 20};

// As an id that is one component of a path: neither runtime takes another.
bool is_component(const std::string& id) {
  return !id.empty() && id != "." && id != ".." && id.find('/') == std::string::npos;
}

}  // namespace

std::string default_root(Dialect dialect) {
  const char* const name = dialect == Dialect::kCrun ? "/crun" : "/runc";
  const char* const own = ::geteuid() == 0 ? nullptr : std::getenv("XDG_RUNTIME_DIR");
  return std::string(own ? own : "/run") + name;
}

std::string absolute_bundle(const Invocation& invocation) {
  const std::string& bundle = invocation.bundle;
  if (bundle.starts_with('/')) return bundle;
  std::error_code failed;
  return std::filesystem::absolute(bundle.empty() ? "." : bundle, failed).string();
}

std::string state_directory(const std::string& root, const std::string& id, Dialect dialect) {
  return is_component(id) ? (root.empty() ? default_root(dialect) : root) + "/" + id : "";
}

std::optional<std::string> find_bundle(const std::string& root, const std::string& id, Dialect dialect) {
  const std::string directory = state_directory(root, id, dialect);
  if (directory.empty()) return std::nullopt;
  const auto state = SpecFile::open(directory, "state.json", kStateLimits);
  if (state && *state) return hook::bundle_of_state(Kind::kRunc, (*state)->text());
  const auto status = SpecFile::open(directory, "status", kStateLimits);
  if (status && *status) return hook::bundle_of_state(Kind::kCrun, (*status)->text());
  return std::nullopt;
}

}  // namespace shim
