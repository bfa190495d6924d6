#include "shim/nri/wire/convert.hpp"

#include <utility>

namespace shim {
namespace {

using google::protobuf::RepeatedPtrField;

std::map<std::string, std::string> take_map(RepeatedPtrField<wire::KeyValue>& entries) {
  std::map<std::string, std::string> values;
  for (auto& entry : entries)
    values.insert_or_assign(std::move(*entry.mutable_key()), std::move(*entry.mutable_value()));
  return values;
}

std::vector<std::string> take_strings(RepeatedPtrField<std::string>& strings) {
  return {std::move_iterator(strings.begin()), std::move_iterator(strings.end())};
}

std::vector<LinuxNamespace> take_namespaces(RepeatedPtrField<wire::LinuxNamespace>& namespaces) {
  std::vector<LinuxNamespace> values;
  values.reserve(static_cast<std::size_t>(namespaces.size()));
  for (auto& each : namespaces)
    values.push_back({.type = std::move(*each.mutable_type()), .path = std::move(*each.mutable_path())});
  return values;
}

std::vector<Mount> take_mounts(RepeatedPtrField<wire::Mount>& mounts) {
  std::vector<Mount> values;
  values.reserve(static_cast<std::size_t>(mounts.size()));
  for (auto& mount : mounts)
    values.push_back({.destination = std::move(*mount.mutable_destination()),
                      .type = std::move(*mount.mutable_type()),
                      .source = std::move(*mount.mutable_source()),
                      .options = take_strings(*mount.mutable_options())});
  return values;
}

std::vector<Device> take_devices(RepeatedPtrField<wire::LinuxDevice>& devices) {
  std::vector<Device> values;
  values.reserve(static_cast<std::size_t>(devices.size()));
  for (auto& device : devices) {
    Device value{.path = std::move(*device.mutable_path()),
                 .type = std::move(*device.mutable_type()),
                 .major_number = device.major_number(),
                 .minor_number = device.minor_number(),
                 .file_mode = {},
                 .uid = {},
                 .gid = {}};
    if (device.has_file_mode()) value.file_mode = device.file_mode().value();
    if (device.has_uid()) value.uid = device.uid().value();
    if (device.has_gid()) value.gid = device.gid().value();
    values.push_back(std::move(value));
  }
  return values;
}

std::vector<Rlimit> take_rlimits(RepeatedPtrField<wire::POSIXRlimit>& rlimits) {
  std::vector<Rlimit> values;
  values.reserve(static_cast<std::size_t>(rlimits.size()));
  for (auto& limit : rlimits)
    values.push_back({.type = std::move(*limit.mutable_type()), .hard = limit.hard(), .soft = limit.soft()});
  return values;
}

ContainerState to_state(std::int32_t number) {
  const bool known = number > 0 && number <= static_cast<std::int32_t>(ContainerState::kStopped);
  return known ? static_cast<ContainerState>(number) : ContainerState::kUnknown;
}

void add_device(wire::LinuxDevice& to, const Device& device) {
  to.set_path(device.path);
  to.set_type(device.type);
  to.set_major_number(device.major_number);
  to.set_minor_number(device.minor_number);
  if (device.file_mode) to.mutable_file_mode()->set_value(*device.file_mode);
  if (device.uid) to.mutable_uid()->set_value(*device.uid);
  if (device.gid) to.mutable_gid()->set_value(*device.gid);
}

void add_mount(wire::Mount& to, const Mount& mount) {
  to.set_destination(mount.destination);
  to.set_type(mount.type);
  to.set_source(mount.source);
  for (const std::string& option : mount.options)
    to.add_options(option);
}

void add_entry(wire::KeyValue& to, const std::string& key, const std::string& value) {
  to.set_key(key);
  to.set_value(value);
}

void add_map(RepeatedPtrField<wire::KeyValue>& to, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values)
    add_entry(*to.Add(), key, value);
}

void add_namespaces(RepeatedPtrField<wire::LinuxNamespace>& to, const std::vector<LinuxNamespace>& namespaces) {
  for (const LinuxNamespace& one : namespaces) {
    auto& added = *to.Add();
    added.set_type(one.type);
    added.set_path(one.path);
  }
}

void add_rlimit(wire::POSIXRlimit& to, const Rlimit& limit) {
  to.set_type(limit.type);
  to.set_hard(limit.hard);
  to.set_soft(limit.soft);
}

}  // namespace

NriPod take_pod(wire::PodSandbox& pod) {
  NriPod value;
  value.id = std::move(*pod.mutable_id());
  value.name = std::move(*pod.mutable_name());
  value.uid = std::move(*pod.mutable_uid());
  value.pod_namespace = std::move(*pod.mutable_pod_namespace());
  value.labels = take_map(*pod.mutable_labels());
  value.annotations = take_map(*pod.mutable_annotations());
  value.runtime_handler = std::move(*pod.mutable_runtime_handler());
  value.pid = pod.pid();
  if (!pod.has_linux_pod()) return value;
  auto& part = *pod.mutable_linux_pod();
  value.cgroup_parent = std::move(*part.mutable_cgroup_parent());
  value.cgroups_path = std::move(*part.mutable_cgroups_path());
  value.namespaces = take_namespaces(*part.mutable_namespaces());
  return value;
}

NriContainer take_container(wire::Container& container) {
  NriContainer value;
  value.id = std::move(*container.mutable_id());
  value.pod_id = std::move(*container.mutable_pod_sandbox_id());
  value.name = std::move(*container.mutable_name());
  value.state = to_state(container.state());
  value.annotations = take_map(*container.mutable_annotations());
  value.env = take_strings(*container.mutable_env());
  value.mounts = take_mounts(*container.mutable_mounts());
  value.rlimits = take_rlimits(*container.mutable_rlimits());
  value.pid = container.pid();
  if (!container.has_linux_container()) return value;
  auto& part = *container.mutable_linux_container();
  value.namespaces = take_namespaces(*part.mutable_namespaces());
  value.devices = take_devices(*part.mutable_devices());
  value.cgroups_path = std::move(*part.mutable_cgroups_path());
  return value;
}

RuntimeInfo take_runtime_info(wire::ConfigureRequest& request) {
  return {.config = std::move(*request.mutable_config()),
          .name = std::move(*request.mutable_runtime_name()),
          .version = std::move(*request.mutable_runtime_version()),
          .nri_version = std::move(*request.mutable_nri_version()),
          .registration_timeout_ms = request.registration_timeout(),
          .request_timeout_ms = request.request_timeout()};
}

ContainerAdjustment take_adjustment(wire::ContainerAdjustment& adjustment) {
  return {.annotations = take_map(*adjustment.mutable_annotations()),
          .mounts = take_mounts(*adjustment.mutable_mounts()),
          .env = take_map(*adjustment.mutable_env()),
          .devices = take_devices(*adjustment.mutable_linux_adjustment()->mutable_devices()),
          .rlimits = take_rlimits(*adjustment.mutable_rlimits())};
}

wire::PodSandbox to_wire(const NriPod& pod) {
  wire::PodSandbox message;
  message.set_id(pod.id);
  message.set_name(pod.name);
  message.set_uid(pod.uid);
  message.set_pod_namespace(pod.pod_namespace);
  add_map(*message.mutable_labels(), pod.labels);
  add_map(*message.mutable_annotations(), pod.annotations);
  message.set_runtime_handler(pod.runtime_handler);
  message.set_pid(pod.pid);
  auto& part = *message.mutable_linux_pod();
  part.set_cgroup_parent(pod.cgroup_parent);
  part.set_cgroups_path(pod.cgroups_path);
  add_namespaces(*part.mutable_namespaces(), pod.namespaces);
  return message;
}

wire::Container to_wire(const NriContainer& container) {
  wire::Container message;
  message.set_id(container.id);
  message.set_pod_sandbox_id(container.pod_id);
  message.set_name(container.name);
  message.set_state(static_cast<std::int32_t>(container.state));
  add_map(*message.mutable_annotations(), container.annotations);
  for (const std::string& variable : container.env)
    message.add_env(variable);
  for (const Mount& mount : container.mounts)
    add_mount(*message.add_mounts(), mount);
  for (const Rlimit& limit : container.rlimits)
    add_rlimit(*message.add_rlimits(), limit);
  message.set_pid(container.pid);
  auto& part = *message.mutable_linux_container();
  for (const Device& device : container.devices)
    add_device(*part.add_devices(), device);
  add_namespaces(*part.mutable_namespaces(), container.namespaces);
  part.set_cgroups_path(container.cgroups_path);
  return message;
}

wire::CreateContainerResponse to_wire(const ContainerAdjustment& adjustment) {
  wire::CreateContainerResponse response;
  if (adjustment == ContainerAdjustment{}) return response;
  auto& adjust = *response.mutable_adjust();
  add_map(*adjust.mutable_annotations(), adjustment.annotations);
  for (const Mount& mount : adjustment.mounts)
    add_mount(*adjust.add_mounts(), mount);
  add_map(*adjust.mutable_env(), adjustment.env);
  for (const Device& device : adjustment.devices)
    add_device(*adjust.mutable_linux_adjustment()->add_devices(), device);
  for (const Rlimit& limit : adjustment.rlimits)
    add_rlimit(*adjust.add_rlimits(), limit);
  return response;
}

}  // namespace shim
