// What a container asks for, and whose word it is. In this order, the first that speaks wins:
//   1. annotations rdma-init.io/devices[.CONTAINER], /mode, /network
//   2. k8s.volcengine.com/pod-networks, else cni.spidernet.io/rdma-resource-inject, /network-resource-inject
//   3. uverbs nodes in linux.devices under whatever path, as a device plugin, --device or CDI leave them
//   4. a network that 1 or 2 names without HCAs: all of them
//   5. "default_devices" of config.json
//   6. RDMA_VISIBLE_DEVICES, MELLANOX_VISIBLE_DEVICES
// 1, 2 and 4 ask only where the annotations are the operator's, or config.json trusts the namespace; else they narrow
// what 3 gave. 6 narrows always, and asks only with "env_may_request".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/log.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/config/values.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct Request {
  // All of `given` when these are the request. kNone only beside given nodes: nothing is added, but what the container
  // can open counts as held.
  Wish wish;
  // The uverbs nodes that linux.devices has already; none of a container that may use all devices, which has them
  // because somebody made it privileged, not for RDMA.
  std::vector<SpecDevice> given;
  bool given_is_the_grant = false;  // the HCAs of `given` bound the wish: they are the request, or it narrows them
  std::vector<Wish> narrowed_by;    // each leaves out what it does not take
  std::vector<std::string> order;   // PCI addresses or netdev names of PCIDEVICE_*, for the order of HCAs
  std::optional<Mode> mode;
  std::optional<std::string> network;
  // What asks for rails without naming a network: the pools say which. Empty: nothing does.
  std::string network_of_pool;
  // PCI-less names of the GPU nodes of linux.devices ("/dev/nvidia0", "/dev/dri/renderD128"), for the selector `gpu`.
  std::vector<std::string> gpu_nodes;
  // Of NVIDIA_VISIBLE_DEVICES, which an image or a pod's author can set: UUIDs (fabric::gpu_uuid()), but none for
  // "default_devices" without GPU nodes; all of it where variables may ask.
  std::vector<std::string> gpu_uuids;
  std::optional<std::string> gpu_hint;
};

// Returns the names of HCAs if the request can only be about these (exact names without globs): the inventory need not
// hold others. nullopt: it can be about any.
std::optional<std::vector<std::string>> named_hcas(const Request& request);
// The same of the wish alone, whatever narrows it.
std::optional<std::vector<std::string>> named_hcas(const Wish& wish);

struct Asked {
  std::optional<Request> request;     // nullopt: nothing is asked, or what asks may not
  std::vector<std::string> warnings;  // e.g. that an annotation asked and was not heard
  Note note = {};                     // that a privileged container's nodes are no request
};

// Pure. Errors are refusals: a malformed value, one over 64 KiB, a count that contradicts the given nodes,
// a device number that the kernel would cut.
Result<Asked> parse_request(const ContainerSpec& spec, const Config& config, Engine engine);

}  // namespace hook
