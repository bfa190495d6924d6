#include "hook/grant/container_request.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/failure.hpp"
#include "base/file.hpp"
#include "base/rooted.hpp"
#include "fabric/read_node.hpp"

namespace hook {
namespace {

constexpr const char* kOwnNetns = "/proc/self/ns/net";

// Returns the network namespace that the container joins by path; nullopt: it joins none, or the path does not exist.
Result<std::optional<NetnsIdentity>> joined_netns(const ContainerSpec& spec) {
  if (!spec.netns_path) return std::optional<NetnsIdentity>();
  auto netns = identify_netns(*spec.netns_path);
  if (netns) return std::optional(std::move(*netns));
  const int code = netns.error().code;
  if (base::is_absent(code)) return std::optional<NetnsIdentity>();
  return about(FailureReason::kState, std::move(netns)).error();
}

Result<bool> is_nodes_own(const NetnsIdentity& netns) {
  const NetnsIdentity own = TRY(identify_netns(kOwnNetns));
  return own.dev == netns.dev && own.ino == netns.ino;
}

// Looks up which of the container's devices are uverbs nodes with a dynamic number. Skips a container that may use all
// devices: engines add the whole /dev of the node to it, so its nodes are no request.
Result<void> look_up_dynamic(ContainerSpec& spec, const std::string& root) {
  if (spec.may_use_all_devices) return {};
  for (SpecDevice& device : spec.devices) {
    if (device.type != 'c') continue;
    device.dynamic_uverbs = TRY(fabric::uverbs_of_dynamic_number(root, device.major, device.minor));
  }
  return {};
}

// Sets spec.maps_node_root: whether the container's user namespace maps root of the node. Engines name the user
// namespace of a pod as /proc/PID/ns/user, and /proc/PID/uid_map has the mapping. If the file cannot be read,
// maps_node_root stays unset.
void look_up_userns(ContainerSpec& spec) {
  constexpr std::string_view kNamespace = "/ns/user";
  const std::string& path = spec.userns_path ? *spec.userns_path : std::string();
  if (spec.maps_node_root || !path.starts_with("/proc/") || !path.ends_with(kNamespace)) return;
  const auto read = base::read_file(path.substr(0, path.size() - kNamespace.size()) + "/uid_map", base::kMostText);
  if (const auto* text = std::get_if<std::string>(&read); text && !text->empty())
    spec.maps_node_root = maps_root(*text);
}

// Decides without the configuration, which could not be read, whether the container may request HCAs. Returns true if
// the container would request HCAs, or its request would be an error, under a configuration that allows all
// annotations. A request by "default_devices" is not detected, because only the configuration that could not be read
// can set that key.
bool may_request_again(const ContainerSpec& spec, Engine engine) {
  Config trusting;
  trusting.annotations_may_request = {"*"};
  const auto asked = parse_request(spec, trusting, engine);
  return !asked || asked->request;
}

}  // namespace

Result<Grantee> grantee_of(const ContainerSpec& spec, GrantUser user, const std::optional<std::string>& place) {
  std::string token = place ? std::string() : TRY(new_token());
  Owner own = place ? container_owner(user.id, *place) : token_owner(token);
  user.key = own.key;
  return Grantee{TRY(owner_of(spec, std::move(own))), std::move(user), std::move(token)};
}

Result<Owner> owner_of(const ContainerSpec& spec, Owner otherwise) {
  const auto netns = TRY(joined_netns(spec));
  if (!netns || TRY(is_nodes_own(*netns))) return otherwise;
  return netns_owner(*netns);
}

Result<bool> uses_host_network(const ContainerSpec& spec) {
  if (!spec.has_netns) return true;
  const auto netns = TRY(joined_netns(spec));
  return netns ? is_nodes_own(*netns) : Result<bool>(false);
}

Result<base::OwnedTree> parse_container_config(std::string_view config_text) {
  return about(FailureReason::kRefused, base::parse_tree(config_text, "the container's config.json"));
}

Result<ContainerRequest> understand(const std::string& config_text, const Result<Config>& admin, const Caller& caller,
                                    const std::optional<std::string>& root) {
  const base::OwnedTree config = TRY(parse_container_config(config_text));
  return understand(config.tree.root(), admin, caller, root);
}

Result<ContainerRequest> understand(const base::JsonNode& config, const Result<Config>& admin, const Caller& caller,
                                    const std::optional<std::string>& root) {
  ContainerSpec spec = TRY(about(FailureReason::kRefused, read_container_spec(config)));
  Recognised recognised = recognise(caller, spec.cgroups_path);
  return understand_spec(std::move(spec), admin, std::move(recognised), root);
}

Result<ContainerRequest> understand_spec(ContainerSpec spec, const Result<Config>& admin, Recognised caller,
                                         const std::optional<std::string>& root) {
  ContainerRequest requesting;
  requesting.caller = std::move(caller);
  requesting.spec = std::move(spec);
  if (root) TRY_VOID(about(FailureReason::kDevices, look_up_dynamic(requesting.spec, *root)));
  if (!admin && !may_request_again(requesting.spec, requesting.caller.engine)) {
    // A mistake in the administrator's configuration must not stop the containers that request nothing.
    requesting.warnings.push_back(admin.error().message);
    return requesting;
  }
  requesting.admin = TRY(about(FailureReason::kConfig, admin));
  ParsedRequest asked =
      TRY(about(FailureReason::kRefused, parse_request(requesting.spec, requesting.admin, requesting.caller.engine)));
  requesting.request = std::move(asked.request);
  requesting.warnings = std::move(asked.warnings);
  if (requesting.caller.is_doubted && !requesting.warnings.empty()) {
    requesting.warnings.insert(
        requesting.warnings.begin(),
        fmt::format("treating the annotations as those of a Podman container, which its image may have set: {}",
                    requesting.caller.by));
  }
  requesting.note = std::move(asked.note);
  requesting.pod_note = std::move(asked.pod_note);
  // The user namespace matters only for a request, and the lookup costs a read of /proc.
  if (requesting.request) look_up_userns(requesting.spec);
  return requesting;
}

bool may_get_rails(const ContainerRequest& requesting) {
  const auto has_network = [](const Pool& pool) { return pool.network.has_value(); };
  const auto& pools = requesting.admin.pools;
  return requesting.spec.has_netns && (names_network(*requesting.request) || std::ranges::any_of(pools, has_network));
}

bool needs_own_view(const ContainerRequest& requesting) {
  return requesting.admin.sysfs_view && requesting.spec.has_userns &&
         may_write_to_mounts(requesting.spec) != MayWrite::kNo;
}

}  // namespace hook
