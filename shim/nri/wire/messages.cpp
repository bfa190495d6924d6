#include "shim/nri/wire/messages.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <type_traits>
#include <utility>

#include "shim/nri/wire/nri.pb.h"
#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

namespace wire = nri::pkg::api::v1alpha1;
using google::protobuf::RepeatedPtrField;

// Limit of a message with a pod and its container. Real messages are shorter: arguments and environment have at most 2
// MiB (limit of execve), annotations 256 KiB (limit of Kubernetes).
constexpr std::size_t kMaxMessage = std::size_t{4} << 20;
// Limit of the fields of one message, because an empty list element takes only two bytes on the wire but about 200 in
// memory. Annotations, arguments and environment that Kubernetes and execve accept stay below the limit.
constexpr std::size_t kMaxFields = std::size_t{1} << 18;
constexpr const char* kMemlock = "RLIMIT_MEMLOCK";
constexpr std::int32_t kStopped = 4;       // CONTAINER_STOPPED of NRI's enum ContainerState
constexpr std::int32_t kDevicesField = 4;  // number of the devices in NRI's enum Field

// Numbers of the fields that contain messages with lists, by nesting level: pod and container in a request; `linux` in
// a pod (8) and in a container (11); `resources` in a container's `linux`. In a container, 8 is `env`, whose strings
// are thus counted like messages. That does no harm: a string of at most 128 KiB (execve) cannot reach kMaxFields.
constexpr std::uint32_t kNested[][3] = {{1, 2, 3}, {8, 11, 11}, {3, 3, 3}};

constexpr std::uint32_t kEnv = 8;  // field of a container

// Returns the larger of these counts: the fields of the message, the fields of any message inside it. If the message is
// invalid, counts the fields before the error, which the parser reports later.
std::size_t most_fields(std::string_view message, std::size_t level) {
  std::size_t own = 0;
  std::size_t most = 0;
  WireReader reader(message);
  while (const auto field = reader.next_valid()) {
    ++own;
    const auto inside = [&](std::uint32_t number) { return field->is_bytes(number); };
    if (level < std::size(kNested) && std::ranges::any_of(kNested[level], inside))
      most = std::max(most, most_fields(field->bytes, level + 1));
  }
  return std::max(own, most);
}

// Parses a message. Errors: it exceeds kMaxMessage or kMaxFields, or is malformed. level: its nesting level in a
// request (kNested).
Result<void> parse(auto& message, std::string_view bytes, std::string_view what, std::size_t level = 0) {
  if (bytes.size() > kMaxMessage)
    return Error{fmt::format("{} of {} bytes: the limit is {}", what, bytes.size(), kMaxMessage), EMSGSIZE};
  if (const std::size_t fields = most_fields(bytes, level); fields > kMaxFields)
    return Error{fmt::format("{} with a list of {} entries: the limit is {}", what, fields, kMaxFields), EMSGSIZE};
  // The limits are checked first, because protobuf allocates memory for each element.
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  return Error{fmt::format("{} of {} bytes is not valid protobuf", what, bytes.size()), EINVAL};
}

// The take_ functions move the strings out of the message.
std::map<std::string, std::string> take_map(RepeatedPtrField<wire::KeyValue>& entries) {
  std::map<std::string, std::string> values;
  for (auto& entry : entries)
    values.insert_or_assign(std::move(*entry.mutable_key()), std::move(*entry.mutable_value()));
  return values;
}

LinuxNamespaces take_namespaces(RepeatedPtrField<wire::LinuxNamespace>& namespaces) {
  LinuxNamespaces paths;
  for (auto& each : namespaces)
    paths.emplace(std::move(*each.mutable_type()), std::move(*each.mutable_path()));
  return paths;
}

NriPod take_pod(wire::PodSandbox& pod) {
  return {.id = std::move(*pod.mutable_id()),
          .name = std::move(*pod.mutable_name()),
          .uid = std::move(*pod.mutable_uid()),
          .pod_namespace = std::move(*pod.mutable_pod_namespace()),
          .annotations = take_map(*pod.mutable_annotations()),
          .namespaces = take_namespaces(*pod.mutable_linux_pod()->mutable_namespaces())};
}

hook::SpecDevice take_device(wire::LinuxDevice& device) {
  return {std::move(*device.mutable_path()), device.type() == "b" ? 'b' : 'c', device.major_number(),
          device.minor_number()};
}

NriContainer take_container(wire::Container& container) {
  NriContainer value;
  value.id = std::move(*container.mutable_id());
  value.pod_id = std::move(*container.mutable_pod_sandbox_id());
  value.name = std::move(*container.mutable_name());
  value.stopped = container.state() == kStopped;
  value.annotations = take_map(*container.mutable_annotations());
  for (auto& mount : *container.mutable_mounts())
    value.mounts.push_back({std::move(*mount.mutable_destination()), mount.type() == "bind"});
  for (const auto& limit : container.rlimits())
    if (limit.type() == kMemlock) value.memlock = {limit.soft(), limit.hard()};
  value.pid = container.pid();
  auto& part = *container.mutable_linux_container();
  value.namespaces = take_namespaces(*part.mutable_namespaces());
  for (auto& device : *part.mutable_devices())
    value.devices.push_back(take_device(device));
  for (auto& rule : *part.mutable_resources()->mutable_devices())
    value.device_rules.push_back({std::move(*rule.mutable_type()), rule.has_major_number(), rule.has_minor_number(),
                                  rule.allow(), std::move(*rule.mutable_access())});
  value.unified = take_map(*part.mutable_resources()->mutable_unified());
  for (auto& netdev : *part.mutable_net_devices())
    value.net_devices.insert(std::move(*netdev.mutable_key()));
  for (auto& device : *container.mutable_cdi_devices())
    value.cdi_devices.push_back(std::move(*device.mutable_name()));
  return value;
}

// Reads the variables from the bytes of a container, because protobuf would copy all of them.
void read_env(std::string_view container, std::vector<std::string>& env) {
  WireReader reader(container);
  while (const auto field = reader.next_valid())
    if (field->is_bytes(kEnv) && hook::is_read_variable(field->bytes)) env.emplace_back(field->bytes);
}

template <typename T>
Result<NriRequest> parse_request_as(std::string_view what, Event method, std::string_view payload) {
  T message;
  TRY_VOID(parse(message, payload, what));
  NriRequest request{.event = method};
  if constexpr (std::is_same_v<T, wire::StateChangeEvent>) request.event = static_cast<Event>(message.event());
  request.pod = take_pod(*message.mutable_pod());
  if (request.of_pod()) return request;
  request.container = take_container(*message.mutable_container());
  WireReader reader(payload);
  while (const auto field = reader.next_valid())
    if (field->is_bytes(T::kContainerFieldNumber)) read_env(field->bytes, request.container.env);
  return request;
}

void add_map(RepeatedPtrField<wire::KeyValue>& to, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    auto& added = *to.Add();
    added.set_key(key);
    added.set_value(value);
  }
}

void add_mount(wire::Mount& to, const hook::PlannedMount& mount) {
  to.set_destination(mount.destination);
  to.set_type(mount.type);
  to.set_source(mount.source);
  for (const std::string& option : mount.options)
    to.add_options(option);
}

void add_device(wire::LinuxDevice& to, const hook::PlannedNode& node) {
  to.set_path(node.path);
  to.set_type("c");
  to.set_major_number(node.major.value_or(0));
  to.set_minor_number(node.minor.value_or(0));
  to.mutable_file_mode()->set_value(node.mode);
  to.mutable_uid()->set_value(node.uid);
  to.mutable_gid()->set_value(node.gid);
}

}  // namespace

Result<NriPod> parse_pod(std::string_view bytes) {
  wire::PodSandbox pod;
  TRY_VOID(parse(pod, bytes, "PodSandbox", 1));
  return take_pod(pod);
}

Result<NriContainer> parse_container(std::string_view bytes) {
  wire::Container container;
  TRY_VOID(parse(container, bytes, "Container", 1));
  NriContainer value = take_container(container);
  read_env(bytes, value.env);
  return value;
}

Result<RuntimeInfo> parse_configure(std::string_view payload) {
  wire::ConfigureRequest request;
  TRY_VOID(parse(request, payload, "ConfigureRequest"));
  return RuntimeInfo{.name = std::move(*request.mutable_runtime_name()),
                     .version = std::move(*request.mutable_runtime_version()),
                     .nri_version = std::move(*request.mutable_nri_version()),
                     .request_timeout_ms = request.request_timeout()};
}

Result<NriRequest> parse_nri_request(Event method, std::string_view payload) {
  if (method == Event::kStateChange)
    return parse_request_as<wire::StateChangeEvent>("StateChangeEvent", method, payload);
  const char* what = method == Event::kCreateContainer ? "CreateContainerRequest" : "request";
  return parse_request_as<wire::PodContainerRequest>(what, method, payload);
}

// In an adjustment of NRI, a device whose path begins with "-" is removed from the container. Any other device replaces
// the existing device of the same path (pkg/adaptation/result.go, adjustDevices).
Result<NriValidation> parse_validation(std::string_view payload) {
  wire::ValidateContainerAdjustmentRequest message;
  TRY_VOID(parse(message, payload, "ValidateContainerAdjustmentRequest"));
  NriValidation validation;
  validation.container_id = message.container().id();
  const auto set = [&](wire::LinuxDevice& device) {
    hook::SpecDevice value = take_device(device);
    const std::string path = value.path;
    validation.devices.insert_or_assign(path, std::move(value));
  };
  for (auto& device : *message.mutable_container()->mutable_linux_container()->mutable_devices())
    set(device);
  for (auto& device : *message.mutable_adjust()->mutable_linux_adjustment()->mutable_devices()) {
    if (device.path().starts_with('-')) {
      validation.devices.erase(device.path().substr(1));
    } else {
      set(device);
    }
  }
  for (auto& owners : *message.mutable_owners()->mutable_owners()) {
    if (owners.key() != validation.container_id) continue;
    for (auto& field : *owners.mutable_value()->mutable_compound()) {
      // NRI records the owners of all adjusted fields; only devices matter here.
      if (field.key() != kDevicesField) continue;
      for (auto& [path, plugin] : take_map(*field.mutable_value()->mutable_owners()))
        validation.owners[path] = plugin.starts_with('-') ? plugin.substr(1) : plugin;
    }
  }
  return validation;
}

Result<std::vector<hook::SpecDevice>> devices_of_response(std::string_view response) {
  wire::CreateContainerResponse message;
  TRY_VOID(parse(message, response, "CreateContainerResponse"));
  std::vector<hook::SpecDevice> devices;
  for (auto& device : *message.mutable_adjust()->mutable_linux_adjustment()->mutable_devices())
    devices.push_back(take_device(device));
  return devices;
}

std::string create_response(const ContainerAdjustment& adjustment) {
  wire::CreateContainerResponse response;
  // An empty answer changes nothing in the container.
  if (adjustment == ContainerAdjustment{}) return {};
  auto& adjust = *response.mutable_adjust();
  add_map(*adjust.mutable_annotations(), adjustment.annotations);
  for (const hook::PlannedMount& mount : adjustment.mounts)
    add_mount(*adjust.add_mounts(), mount);
  add_map(*adjust.mutable_env(), adjustment.env);
  for (const hook::PlannedNode& node : adjustment.devices)
    add_device(*adjust.mutable_linux_adjustment()->add_devices(), node);
  if (adjustment.memlock) {
    auto& limit = *adjust.add_rlimits();
    limit.set_type(kMemlock);
    limit.set_hard(adjustment.memlock->hard);
    limit.set_soft(adjustment.memlock->soft);
  }
  if (!adjustment.unified.empty())
    add_map(*adjust.mutable_linux_adjustment()->mutable_resources()->mutable_unified(), adjustment.unified);
  return response.SerializeAsString();
}

}  // namespace shim
