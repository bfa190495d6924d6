#include "hook/oci/container_spec.hpp"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/json/json.hpp"
#include "base/json/tree.hpp"
#include "base/text.hpp"
#include "fabric/inventory.hpp"

namespace hook {
namespace {

// Returns a member; nullptr: it is missing or null. Go programs omit an empty member or write null, with the same
// meaning.
const JsonNode* find(const JsonNode& object, std::string_view name) {
  const JsonNode* const found = object.find(name);
  return found && !found->is_null() ? found : nullptr;
}

// Returns an optional member that must be an object.
Result<const JsonNode*> find_object(const JsonNode& parent, std::string_view name, std::string_view path) {
  const JsonNode* member = find(parent, name);
  if (member && !member->is_object()) return make_error("`{}`: expected an object", path);
  return member;
}

Result<const JsonNode*> find_array(const JsonNode& parent, std::string_view name, std::string_view path) {
  const JsonNode* member = find(parent, name);
  if (member && !member->is_array()) return make_error("`{}`: expected an array", path);
  return member;
}

// The place of an element in the document, which only messages need.
struct Place {
  const char* path;
  std::size_t index;

  std::string text() const { return fmt::format("{}[{}]", path, index); }
};

Error wrong_type(const Place& at, std::string_view name, const char* expected) {
  return make_error("`{}.{}`: expected {}", at.text(), name, expected);
}

// Returns a part of the text that was parsed; empty if the member is missing.
Result<std::string_view> text(const JsonNode& parent, std::string_view name, const Place& at) {
  const JsonNode* member = find(parent, name);
  if (!member) return std::string_view();
  if (!member->is_string()) return wrong_type(at, name, "a string");
  return member->text;
}

// Returns a text of an object that is no element of an array.
Result<std::string> text(const JsonNode& parent, std::string_view name, const char* path) {
  const JsonNode* member = find(parent, name);
  if (!member) return std::string();
  if (!member->is_string()) return make_error("`{}.{}`: expected a string", path, name);
  return std::string(member->text);
}

// Returns a device number, which is signed in the specification; 0 if it is missing.
Result<std::int64_t> signed_number(const JsonNode& parent, std::string_view name, const Place& at) {
  const JsonNode* member = find(parent, name);
  if (!member) return std::int64_t{0};
  const bool is_large = member->kind == JsonNode::Kind::kUnsigned && member->number > std::uint64_t{INT64_MAX};
  if (!member->is_integer() || is_large) return wrong_type(at, name, "a number");
  return static_cast<std::int64_t>(member->number);
}

Result<std::uint64_t> unsigned_number(const JsonNode& parent, std::string_view name, const auto& path_text) {
  const JsonNode* member = find(parent, name);
  if (!member) return std::uint64_t{0};
  if (member->kind != JsonNode::Kind::kUnsigned)
    return make_error("`{}.{}`: expected a number from 0", path_text(), name);
  return member->number;
}

using ReadElement = Result<void> (*)(const JsonNode& element, const Place& at, ContainerSpec& spec);

// Calls read() for each element of an optional array of objects, with its place for messages.
Result<void> each_object(const JsonNode& parent, const char* name, const char* path, ContainerSpec& spec,
                         ReadElement read) {
  const JsonNode* array = TRY(find_array(parent, name, path));
  if (!array) return {};
  Place at{path, 0};
  for (const JsonNode& element : *array) {
    if (!element.is_object()) return make_error("`{}`: expected an object", at.text());
    TRY_VOID(read(element, at, spec));
    ++at.index;
  }
  return {};
}

Result<void> read_annotations(const JsonNode& config, ContainerSpec& spec) {
  const JsonNode* annotations = TRY(find_object(config, "annotations", "annotations"));
  if (!annotations) return {};
  for (const JsonNode& value : *annotations) {
    if (!value.is_string())
      return make_error("`annotations.{}`: expected a string", base::printable(value.key.substr(0, 128)));
    spec.annotations.emplace(value.key, value.text);
  }
  return {};
}

Result<void> read_rlimit(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  // runc and crun set the limits in order, so the last entry of a type counts.
  if (TRY(text(element, "type", at)) != "RLIMIT_MEMLOCK") return {};
  const auto path = [&] { return at.text(); };
  spec.memlock = Rlimit{TRY(unsigned_number(element, "soft", path)), TRY(unsigned_number(element, "hard", path))};
  return {};
}

// Returns true if the list has the capability. crun accepts names in lower and upper case, and ends a name at a NUL.
bool has_capability(const JsonNode& names, std::string_view wanted) {
  return std::any_of(names.begin(), names.end(), [&](const JsonNode& name) {
    const std::string_view text = name.is_string() ? name.text.substr(0, name.text.find('\0')) : std::string_view();
    return text.size() == wanted.size() && ::strncasecmp(text.data(), wanted.data(), wanted.size()) == 0;
  });
}

// CAP_SYS_ADMIN counts in any set, because execve(2) of a program with file capabilities can gain it from the bounding
// set alone. For a user other than root, CAP_IPC_LOCK counts in the ambient set only: execve(2) clears the other
// effective capabilities.
Result<void> read_capabilities(const JsonNode& process, ContainerSpec& spec) {
  const JsonNode* sets = TRY(find_object(process, "capabilities", "process.capabilities"));
  if (!sets) return {};
  for (const JsonNode& names : *sets) {
    if (!names.is_array()) continue;  // skips the list, because the runtime reports this error
    spec.may_remount = spec.may_remount || has_capability(names, "CAP_SYS_ADMIN");
    if (names.key == (spec.uid == 0 ? "effective" : "ambient"))
      spec.has_ipc_lock = has_capability(names, "CAP_IPC_LOCK");
  }
  return {};
}

Result<void> read_process(const JsonNode& config, ContainerSpec& spec) {
  const JsonNode* process = TRY(find_object(config, "process", "process"));
  if (!process) return {};
  if (const JsonNode* env = TRY(find_array(*process, "env", "process.env"))) {
    std::size_t index = 0;
    for (const JsonNode& variable : *env) {
      if (!variable.is_string()) return make_error("`process.env[{}]`: expected a string", index);
      if (is_read_variable(variable.text)) spec.env.emplace_back(variable.text);
      ++index;
    }
  }
  if (const JsonNode* user = TRY(find_object(*process, "user", "process.user"))) {
    const std::uint64_t uid = TRY(unsigned_number(*user, "uid", [] { return "process.user"; }));
    if (uid > UINT32_MAX) return make_error("`process.user.uid`: {} is larger than 4294967295", uid);
    spec.uid = static_cast<std::uint32_t>(uid);
  }
  TRY_VOID(read_capabilities(*process, spec));
  return each_object(*process, "rlimits", "process.rlimits", spec, read_rlimit);
}

Result<void> read_device(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  SpecDevice device;
  device.path = TRY(text(element, "path", at));
  const std::string_view type = TRY(text(element, "type", at));
  if (type.size() != 1) return wrong_type(at, "type", "one letter");
  device.type = type == "u" ? 'c' : type[0];  // mknod(2) makes a character device of `u` and `c`
  device.major = TRY(signed_number(element, "major", at));
  device.minor = TRY(signed_number(element, "minor", at));
  spec.devices.push_back(std::move(device));
  return {};
}

Result<void> read_uid_mapping(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  const auto path = [&] { return at.text(); };
  const std::uint64_t host = TRY(unsigned_number(element, "hostID", path));
  const std::uint64_t size = TRY(unsigned_number(element, "size", path));
  spec.maps_node_root = spec.maps_node_root.value_or(false) || (host == 0 && size > 0);
  return {};
}

Result<void> read_namespace(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  const std::string_view type = TRY(text(element, "type", at));
  const std::string_view path = TRY(text(element, "path", at));
  // An entry without a path creates a namespace; with a path, the container joins it.
  if (type == "user") {
    spec.has_userns = true;
    if (!path.empty()) spec.userns_path = path;
  }
  if (type == "pid" && path.empty()) spec.has_own_pidns = true;
  if (type != "network") return {};
  spec.has_netns = true;
  if (!path.empty()) spec.netns_path = path;
  return {};
}

constexpr std::string_view kLower = "lowerdir=";

Result<void> read_mount(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  SpecMount mount{std::string(TRY(text(element, "destination", at))), false};
  mount.is_bind = TRY(text(element, "type", at)) == "bind";
  std::string_view source = TRY(text(element, "source", at));
  const JsonNode* options = find(element, "options");
  if (options && !options->is_array()) return wrong_type(at, "options", "an array");
  std::size_t index = 0;
  for (auto option = options ? options->begin() : JsonNode::Iterator(); options && option != options->end(); ++option) {
    if (!option->is_string()) return make_error("`{}.options[{}]`: expected a string", at.text(), index);
    ++index;
    // Runtimes recognise a bind mount by its options, whatever its type.
    if (option->text == "bind" || option->text == "rbind") mount.is_bind = true;
    if (option->text.starts_with(kLower))
      source = option->text.substr(kLower.size(), option->text.find(':') - kLower.size());
  }
  if (source.starts_with('/')) mount.source = source;
  spec.mounts.push_back(std::move(mount));
  return {};
}

Result<void> read_device_rule(const JsonNode& element, const Place& at, ContainerSpec& spec) {
  const std::string_view type = TRY(text(element, "type", at));
  const std::string_view access = TRY(text(element, "access", at));
  const JsonNode* allow = find(element, "allow");
  if (allow && !allow->is_boolean()) return wrong_type(at, "allow", "true or false");
  const bool allows = allow && allow->number != 0;
  // The runtime applies the rules in order, so the last one that covers all devices decides.
  if (is_of_all_devices(type, find(element, "major"), find(element, "minor"), access, allows))
    spec.may_use_all_devices = allows;
  return {};
}

Result<void> read_linux(const JsonNode& config, ContainerSpec& spec) {
  const JsonNode* linux_member = TRY(find_object(config, "linux", "linux"));
  if (!linux_member) return {};
  spec.cgroups_path = TRY(text(*linux_member, "cgroupsPath", "linux"));
  TRY_VOID(each_object(*linux_member, "devices", "linux.devices", spec, read_device));
  if (const JsonNode* resources = TRY(find_object(*linux_member, "resources", "linux.resources"))) {
    TRY_VOID(each_object(*resources, "devices", "linux.resources.devices", spec, read_device_rule));
  }
  if (const JsonNode* netdevs = TRY(find_object(*linux_member, "netDevices", "linux.netDevices"))) {
    for (const JsonNode& netdev : *netdevs)
      spec.moved_netdevs.emplace(netdev.key);
  }
  TRY_VOID(each_object(*linux_member, "uidMappings", "linux.uidMappings", spec, read_uid_mapping));
  return each_object(*linux_member, "namespaces", "linux.namespaces", spec, read_namespace);
}

std::string annotation_or_empty(const ContainerSpec& spec, const char* key) {
  const auto found = spec.annotations.find(key);
  return found == spec.annotations.end() ? std::string() : found->second;
}

}  // namespace

Result<std::string> read_bundle_config(const std::string& bundle) {
  auto text = read_text_file(bundle + "/config.json");
  if (text) return text;
  Error error = base::wrap(std::move(text).error(), "the container's bundle");
  error.hint = "pass the directory that contains the container's config.json as bundle";
  // crun 1.8.1 names "/" as the bundle of a container with a user namespace and linux.devices (tested).
  if (bundle == "/") error.hint = "this crun does not pass the bundle's path: use a later crun, or runc";
  return error;
}

Result<ContainerSpec> read_container_spec(const Json& config) {
  return read_container_spec(base::tree_of(config).tree.root());
}

Result<ContainerSpec> read_container_spec(const JsonNode& config) {
  if (!config.is_object()) return make_error("`config.json` of the container: expected an object");
  ContainerSpec spec;
  if (const JsonNode* root = TRY(find_object(config, "root", "root")))
    spec.root_path = TRY(text(*root, "path", "root"));
  TRY_VOID(read_annotations(config, spec));
  TRY_VOID(read_process(config, spec));
  TRY_VOID(read_linux(config, spec));
  TRY_VOID(each_object(config, "mounts", "mounts", spec, read_mount));
  return spec;
}

MayWrite may_write_to_mounts(const ContainerSpec& spec) {
  // A remount needs CAP_SYS_ADMIN, and a write then needs the uid that owns the files.
  if (!spec.may_remount) return MayWrite::kNo;
  if (!spec.has_userns) return MayWrite::kYes;
  if (!spec.maps_node_root) return MayWrite::kUnknown;
  return *spec.maps_node_root ? MayWrite::kYes : MayWrite::kNo;
}

bool maps_root(std::string_view uid_map) {
  const auto lines = base::split(uid_map, '\n');
  return std::ranges::any_of(lines, [](std::string_view line) {
    std::vector<std::uint32_t> numbers;
    for (const std::string_view word : base::split(line, ' '))
      if (const auto number = base::parse_number<std::uint32_t>(word)) numbers.push_back(*number);
    // Each line is "INSIDE OUTSIDE LENGTH".
    return numbers.size() == 3 && numbers[1] == 0 && numbers[2] > 0;
  });
}

std::optional<unsigned> SpecDevice::uverbs() const {
  if (type != 'c') return std::nullopt;
  return dynamic_uverbs ? dynamic_uverbs : fabric::uverbs_of_number(major, minor);
}

bool is_of_all_devices(std::string_view type, bool has_major, bool has_minor, std::string_view access, bool allow) {
  if ((!type.empty() && type != "a") || has_major || has_minor) return false;
  const bool reads = access.find('r') != std::string_view::npos;
  const bool writes = access.find('w') != std::string_view::npos;
  return allow ? reads && writes : reads || writes || access.empty();
}

bool is_read_variable(std::string_view variable) {
  // RDMA_: each variable of a plan, RDMA_VISIBLE_DEVICES. PCIDEVICE_: sriov-network-device-plugin.
  constexpr std::array<std::string_view, 4> kBegins = {"RDMA_", "PCIDEVICE_",
                                                       "NVIDIA_VISIBLE_DEVICES=", "MELLANOX_VISIBLE_DEVICES="};
  return std::ranges::any_of(kBegins, [&](std::string_view begin) { return variable.starts_with(begin); });
}

std::optional<std::string> find_env(const ContainerSpec& spec, std::string_view name) {
  for (auto entry = spec.env.rbegin(); entry != spec.env.rend(); ++entry) {
    const std::string_view view = *entry;
    // The position of '=' excludes most variables without a comparison of names.
    if (view.size() > name.size() && view[name.size()] == '=' && view.starts_with(name))
      return std::string(view.substr(name.size() + 1));
  }
  return std::nullopt;
}

namespace {

constexpr const char* kNamespaceLabel = "io.kubernetes.pod.namespace";

// CRI-O forms the sandbox's name from its metadata: k8s_NAME_NAMESPACE_UID_ATTEMPT (1.37, internal/factory/sandbox).
// Name and namespace are DNS names, without '_'.
std::optional<std::string> sandbox_namespace(const ContainerSpec& spec) {
  const std::string name = annotation_or_empty(spec, "io.kubernetes.cri-o.SandboxName");
  const auto parts = base::split(name, '_');
  return parts.size() == 5 ? std::optional<std::string>(parts[2]) : std::nullopt;
}

}  // namespace

PodIdentity pod_identity(const ContainerSpec& spec, Engine engine) {
  // Both engines write these annotations after they have copied the annotations of the pod, so a pod's author cannot
  // choose a namespace (containerd 2.0 container_create; CRI-O 1.30 SpecAddAnnotations, which writes the kubelet's
  // labels last).
  switch (engine) {
    case Engine::kContainerd:
      return {annotation_or_empty(spec, "io.kubernetes.cri.sandbox-namespace"),
              annotation_or_empty(spec, "io.kubernetes.cri.container-name"),
              annotation_or_empty(spec, "io.kubernetes.cri.container-type") == "sandbox",
              annotation_or_empty(spec, "io.kubernetes.cri.sandbox-name"),
              annotation_or_empty(spec, "io.kubernetes.cri.sandbox-uid"),
              annotation_or_empty(spec, "io.kubernetes.cri.sandbox-id")};
    case Engine::kCrio:
      return {sandbox_namespace(spec).value_or(annotation_or_empty(spec, kNamespaceLabel)),
              annotation_or_empty(spec, "io.kubernetes.container.name"),
              annotation_or_empty(spec, "io.kubernetes.cri-o.ContainerType") == "sandbox",
              annotation_or_empty(spec, "io.kubernetes.pod.name"),
              annotation_or_empty(spec, "io.kubernetes.pod.uid"),
              annotation_or_empty(spec, "io.kubernetes.cri-o.SandboxID")};
    case Engine::kRunc:
    case Engine::kDocker:
    case Engine::kPodman:
      break;
  }
  return {};
}

Result<void> check_pod_namespace(const ContainerSpec& spec, Engine engine) {
  const auto named = engine == Engine::kCrio ? sandbox_namespace(spec) : std::nullopt;
  const std::string label = annotation_or_empty(spec, kNamespaceLabel);
  if (!named || label.empty() || label == *named) return {};
  return make_error("cannot determine the pod's namespace: its sandbox has `{}`, the label `{}` has `{}`",
                    base::printable(*named), kNamespaceLabel, base::printable(label));
}

}  // namespace hook
