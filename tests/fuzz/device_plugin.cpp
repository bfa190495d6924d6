// Any bytes as the kubelet's requests to rdma-device-plugin, up to the answer.
#include <algorithm>
#include <set>
#include <string>

#include "require.hpp"
#include "shim/device_plugin/wire/messages.hpp"

namespace {

using fuzz::require;

// Shared and exclusive HCAs, near and far, healthy and not.
shim::Resource made_up(FuzzedDataProvider& data) {
  shim::Resource resource{.name = "a.io/b", .hcas = {}, .devices = {}};
  const auto hcas = data.ConsumeIntegralInRange<std::size_t>(0, 6);
  for (std::size_t at = 0; at < hcas; ++at) {
    shim::CountedHca& hca = resource.hcas.emplace_back();
    hca.name = fmt::format("h{}", at);
    hca.nodes = {fmt::format("/dev/infiniband/uverbs{}", at), "/dev/infiniband/rdma_cm"};
    if (data.ConsumeBool()) hca.numa_node = data.ConsumeIntegralInRange(0, 3);
    for (int depth = data.ConsumeIntegralInRange(0, 2); depth > 0; --depth)
      hca.pci_path.push_back(data.ConsumeBool() ? "a" : "b");
    const unsigned count = data.ConsumeIntegralInRange(0U, 3U);
    if (count == 0) resource.devices.push_back({hca.name, at, data.ConsumeBool() ? "down" : ""});
    for (unsigned number = 1; number <= count; ++number)
      resource.devices.push_back({fmt::format("{}#{}", hca.name, number), at, data.ConsumeBool() ? "down" : ""});
  }
  return resource;
}

// Adds IDs. Half of them are IDs of the resource, because random bytes seldom are.
void add_ids(FuzzedDataProvider& data, const shim::Resource& resource,
             google::protobuf::RepeatedPtrField<std::string>& ids) {
  for (int count = data.ConsumeIntegralInRange(0, 12); count > 0; --count) {
    const bool known = data.ConsumeBool() && !resource.devices.empty();
    ids.Add(known ? std::string(
                        resource.devices[data.ConsumeIntegralInRange<std::size_t>(0, resource.devices.size() - 1)].id)
                  : data.ConsumeRandomLengthString(8));
  }
}

void check_preferred(const shim::Resource& resource, const v1beta1::PreferredAllocationRequest& request) {
  v1beta1::PreferredAllocationResponse response;
  const auto done = shim::prefer_devices(resource, request, response);
  if (!done) return fuzz::require_one_line(done.error().message, "a refusal");
  require(response.container_responses_size() == request.container_requests_size(), "an answer for each container");
  for (int at = 0; at < request.container_requests_size(); ++at) {
    const auto& asked = request.container_requests(at);
    const auto& answer = response.container_responses(at).device_ids();
    const std::set<std::string> ids(answer.begin(), answer.end());
    const std::set<std::string> available(asked.available_device_ids().begin(), asked.available_device_ids().end());
    require(ids.size() == static_cast<std::size_t>(answer.size()), "each ID once");
    require(answer.size() == asked.allocation_size(), "as many as requested");
    require(std::includes(available.begin(), available.end(), ids.begin(), ids.end()), "only available devices");
    for (const std::string& must : asked.must_include_device_ids())
      require(ids.contains(must), "a required device is included");
  }
}

void check_allocated(const shim::Resource& resource, bool cdi, const v1beta1::AllocateRequest& request) {
  v1beta1::AllocateResponse response;
  std::vector<std::vector<const shim::CountedHca*>> hcas;
  const auto done = shim::requested_hcas(resource, request, hcas);
  if (!done) return fuzz::require_one_line(done.error().message, "a refusal");
  shim::allocate_devices(
      hcas, [&](const auto&) { return cdi; }, response);
  require(response.container_responses_size() == request.container_requests_size(), "an answer for each container");
  for (int at = 0; at < request.container_requests_size(); ++at) {
    std::set<std::size_t> wanted;
    for (const std::string& id : request.container_requests(at).device_ids()) {
      const auto* device = resource.find(id);
      require(device && device->problem.empty(), "only existing and healthy devices are allocated");
      wanted.insert(device->hca);
    }
    const auto& answer = response.container_responses(at);
    require(hcas[static_cast<std::size_t>(at)].size() == wanted.size(), "each HCA once");
    const int nodes = wanted.empty() ? 0 : static_cast<int>(wanted.size()) + 1;
    require(answer.devices_size() == (cdi ? 0 : nodes), "a node for each HCA, and rdma_cm");
    require(answer.cdi_devices_size() == (cdi ? static_cast<int>(wanted.size()) : 0), "a name for each HCA");
  }
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const shim::Resource resource = made_up(data);
  v1beta1::ListAndWatchResponse listed;
  shim::list_devices(resource, listed);
  require(static_cast<std::size_t>(listed.devices_size()) == resource.devices.size(), "every device is listed");
  const bool cdi = data.ConsumeBool();
  v1beta1::PreferredAllocationRequest preferred;
  v1beta1::AllocateRequest allocate;
  if (data.ConsumeBool()) {
    const std::string message = data.ConsumeRemainingBytesAsString();
    if (preferred.ParseFromString(message)) check_preferred(resource, preferred);
    if (allocate.ParseFromString(message)) check_allocated(resource, cdi, allocate);
    return;
  }
  for (int containers = data.ConsumeIntegralInRange(0, 3); containers > 0; --containers) {
    auto& request = *preferred.add_container_requests();
    add_ids(data, resource, *request.mutable_available_device_ids());
    add_ids(data, resource, *request.mutable_must_include_device_ids());
    request.set_allocation_size(data.ConsumeIntegralInRange(-1, 12));
    add_ids(data, resource, *allocate.add_container_requests()->mutable_device_ids());
  }
  check_preferred(resource, preferred);
  check_allocated(resource, cdi, allocate);
}
