#include "shim/device_plugin/wire/messages.hpp"

#include "hook/apply/cdi_spec.hpp"

namespace shim {
namespace {

std::vector<std::string> texts_of(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

}  // namespace

void list_devices(const Resource& resource, v1beta1::ListAndWatchResponse& response) {
  for (const CountedDevice& device : resource.devices) {
    v1beta1::Device& listed = *response.add_devices();
    listed.set_id(device.id);
    listed.set_health(device.problem.empty() ? "Healthy" : "Unhealthy");
    // Without topology the kubelet's topology manager has no preference for the device.
    if (const auto node = resource.hcas[device.hca].numa_node) listed.mutable_topology()->add_nodes()->set_id(*node);
  }
}

Result<void> prefer_devices(const Resource& resource, const v1beta1::PreferredAllocationRequest& request,
                            v1beta1::PreferredAllocationResponse& response) {
  for (const auto& container : request.container_requests()) {
    if (container.allocation_size() < 0) return make_error("{} devices are requested", container.allocation_size());
    const auto ids = TRY(preferred_ids(resource, texts_of(container.available_device_ids()),
                                       texts_of(container.must_include_device_ids()),
                                       static_cast<std::size_t>(container.allocation_size())));
    auto& preferred = *response.add_container_responses();
    for (const std::string& id : ids)
      preferred.add_device_ids(id);
  }
  return {};
}

Result<void> requested_hcas(const Resource& resource, const v1beta1::AllocateRequest& request,
                            std::vector<std::vector<const CountedHca*>>& hcas) {
  for (const auto& container : request.container_requests())
    hcas.push_back(TRY(hcas_of(resource, texts_of(container.device_ids()))));
  return {};
}

void allocate_devices(const std::vector<std::vector<const CountedHca*>>& hcas, const ByCdi& by_cdi,
                      v1beta1::AllocateResponse& response) {
  for (const auto& of_container : hcas) {
    auto& allocated = *response.add_container_responses();
    if (by_cdi && by_cdi(of_container)) {
      for (const CountedHca* hca : of_container)
        allocated.add_cdi_devices()->set_name(std::string(hook::kCdiKind) + "=" + hca->name);
      continue;
    }
    for (const std::string& path : nodes_of(of_container)) {
      auto& node = *allocated.add_devices();
      node.set_container_path(path);
      node.set_host_path(path);
      // The permissions lack "m", because containers must not create device nodes.
      node.set_permissions("rw");
    }
  }
}

}  // namespace shim
