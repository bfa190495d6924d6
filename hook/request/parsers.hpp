// The parsers behind parse_request(), one for each source of requests. Internal to hook/; each can be tested and fuzzed
// separately.
//
// All are pure. Errors are refusals that name the annotation or variable: it is malformed, over kMaxValueBytes, or a
// list over kMaxListEntries.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/request/request.hpp"

namespace hook {

// The value of an annotation or variable, and its name in messages.
struct SourcedText {
  std::string text;
  std::string source;  // "annotation rdma-init.io/mode"
};

// The request in one vendor's annotations. All members are empty if there is none.
struct RequestParts {
  std::optional<HcaSelection> selection;
  std::optional<SourcedText> mode;
  std::optional<SourcedText> network;
  std::string network_of_pool;  // source of a request for rails without a network (Request)
  // The number of NICs that the pod also requests from a device plugin, one for each entry (k8s.volcengine.com). If the
  // plugin added uverbs nodes, these are the request, and their number must equal `nics`.
  std::optional<unsigned> nics;
  std::vector<std::string> warnings;

  bool asks() const { return selection || network; }
};

// Returns an annotation, with its size checked; nullopt: there is none.
Result<std::optional<SourcedText>> find_annotation(const ContainerSpec& spec, const std::string& key);
// Returns "a, b, c and 5 more": the first names of a list that may be long.
std::string some_of(const std::vector<std::string>& names, std::size_t most = 8);

// Reads rdma-init.io/devices[.CONTAINER], /mode, /network.
Result<RequestParts> own_annotations(const ContainerSpec& spec, std::string_view container_name);
// Reads k8s.volcengine.com/pod-networks: entries that name a network of config.json, or "rdma". If config.json has no
// network "rdma", this entry means the network that another entry names. If no entry names one, it means the networks
// of the pools or, if no pool has one and config.json has a single network, that network.
Result<RequestParts> volcengine_annotation(const ContainerSpec& spec, const Config& config);
// Reads cni.spidernet.io/rdma-resource-inject, else /network-resource-inject: the name of a network.
Result<RequestParts> spiderpool_annotations(const ContainerSpec& spec, const Config& config,
                                            std::string_view pod_namespace);

// Returns the uverbs nodes in linux.devices: first nodes with the path of a uverbs node, then nodes under another path
// with the number of a uverbs node. A node of the second kind is left out if a node with its number is in the list
// already.
std::vector<SpecDevice> granted_uverbs_nodes(const ContainerSpec& spec);
// Returns the paths of the GPU nodes ("/dev/nvidia0", "/dev/dri/renderD128").
std::vector<std::string> granted_gpu_nodes(const ContainerSpec& spec);
// Returns the UUIDs of the GPUs in a value of NVIDIA_VISIBLE_DEVICES, each once, from the forms "GPU-UUID" and, for MIG
// devices, "MIG-GPU-UUID/GI/CI". The newer form, "MIG-UUID", does not name the GPU.
std::vector<std::string> gpu_uuids(std::string_view value);
// Returns the PCI addresses or netdev names of PCIDEVICE_*, in their order, except variables named _INFO, which are
// JSON about the same devices.
Result<std::vector<std::string>> pcidevice_order(const ContainerSpec& spec);

// Reads RDMA_VISIBLE_DEVICES, else MELLANOX_VISIBLE_DEVICES, in the format of enroot: all, none, void, indices.
// nullopt: both are unset or empty.
Result<std::optional<HcaSelection>> visible_devices(const ContainerSpec& spec);

}  // namespace hook
