#include "shim/runtime/find_bundle.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "hook/base/json/json.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {
namespace {

using hook::Json;

constexpr hook::JsonLimits kStateLimits = {.bytes = std::size_t{4} << 20};

std::optional<Json> parse_state(std::string_view text) {
  hook::JsonFault fault;
  return hook::try_parse_json(text, kStateLimits, fault);
}

std::optional<std::string> absolute(const Json* path) {
  const auto* text = path ? path->get_ptr<const std::string*>() : nullptr;
  if (!text || !text->starts_with('/')) return std::nullopt;
  return *text;
}

// As an id that is one component of a path: neither runtime takes another.
bool is_component(const std::string& id) {
  return !id.empty() && id != "." && id != ".." && id.find('/') == std::string::npos;
}

std::string default_root(Dialect dialect) {
  const char* const name = dialect == Dialect::kCrun ? "/crun" : "/runc";
  const char* const own = ::geteuid() == 0 ? nullptr : std::getenv("XDG_RUNTIME_DIR");
  return std::string(own ? own : "/run") + name;
}

}  // namespace

std::optional<std::string> bundle_of_runc_state(std::string_view text) {
  const auto state = parse_state(text);
  const Json* config = state ? hook::member(*state, "config") : nullptr;
  const Json* labels = config ? hook::member(*config, "labels") : nullptr;
  if (!labels || !labels->is_array()) return std::nullopt;
  // runc's labels are the annotations and then the bundle: an annotation of the name "bundle" comes before it
  // (libcontainer/specconv/spec_linux.go, CreateLibcontainerConfig).
  constexpr std::string_view kBundle = "bundle=";
  const auto* last = labels->empty() ? nullptr : labels->back().get_ptr<const std::string*>();
  if (!last || !last->starts_with(kBundle)) return std::nullopt;
  const Json path = last->substr(kBundle.size());
  return absolute(&path);
}

std::optional<std::string> bundle_of_crun_status(std::string_view text) {
  const auto status = parse_state(text);
  return status ? absolute(hook::member(*status, "bundle")) : std::nullopt;
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
  if (state && *state) return bundle_of_runc_state((*state)->text());
  const auto status = SpecFile::open(directory, "status", kStateLimits);
  if (status && *status) return bundle_of_crun_status((*status)->text());
  return std::nullopt;
}

}  // namespace shim
