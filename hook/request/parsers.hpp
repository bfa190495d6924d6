// The parsers behind parse_request(), one for each way in which a container asks. Internal to hook/; each can be tested
// and fuzzed on its own.
//
// All are pure. Errors are refusals that name the annotation or variable: malformed, over kMaxValueBytes, a list over
// kMaxListEntries.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/request/request.hpp"

namespace hook {

// The value of an annotation or variable, and what messages call it.
struct SourcedText {
  std::string text;
  std::string source;  // "annotation rdma-init.io/mode"
};

// What one vendor's annotations say. All members are empty when they say nothing.
struct Said {
  std::optional<Wish> wish;
  std::optional<SourcedText> mode;
  std::optional<SourcedText> network;
  std::string network_of_pool;  // as Request has it
  // One NIC per entry was asked of a device plugin as well (k8s.volcengine.com): its nodes, when there are any, are the
  // answer, and their number has to be this.
  std::optional<unsigned> nics;
  std::vector<std::string> warnings;

  bool asks() const { return wish || network; }
};

// The annotation, its size checked; nullopt: it is not there.
Result<std::optional<SourcedText>> find_annotation(const ContainerSpec& spec, const std::string& key);
// "a, b, c and 5 more": at most 8 names of a list that may be long.
std::string some_of(const std::vector<std::string>& names);

// rdma-init.io/devices[.CONTAINER], /mode, /network.
Result<Said> own_annotations(const ContainerSpec& spec, std::string_view container_name);
// k8s.volcengine.com/pod-networks: entries that name a network of config.json, or "rdma". Without a network of that
// name this is the network that another entry names, else the pools', else the only one there is.
Result<Said> volcengine_annotation(const ContainerSpec& spec, const Config& config);
// cni.spidernet.io/rdma-resource-inject, else /network-resource-inject: the name of a network.
Result<Said> spiderpool_annotations(const ContainerSpec& spec, const Config& config, std::string_view pod_namespace);

// The uverbs nodes that linux.devices has: those called so, and those that are one by number and that no other path
// here has already. And the GPU nodes ("/dev/nvidia0", "/dev/dri/renderD128").
std::vector<SpecDevice> given_uverbs_nodes(const ContainerSpec& spec);
std::vector<std::string> given_gpu_nodes(const ContainerSpec& spec);
// The GPUs' UUIDs in a value of NVIDIA_VISIBLE_DEVICES, each once: "GPU-UUID", and of the older form of MIG devices,
// "MIG-GPU-UUID/GI/CI", whose GPU it is. The newer, "MIG-UUID", does not tell its GPU.
std::vector<std::string> gpu_uuids(std::string_view value);
// PCI addresses or netdev names of PCIDEVICE_* (without _INFO, which is JSON about the same), in their order.
Result<std::vector<std::string>> pcidevice_order(const ContainerSpec& spec);

// RDMA_VISIBLE_DEVICES, else MELLANOX_VISIBLE_DEVICES, as enroot reads it: all, none, void, indices. nullopt: neither
// is set, or they are empty.
Result<std::optional<Wish>> visible_devices(const ContainerSpec& spec);

}  // namespace hook
