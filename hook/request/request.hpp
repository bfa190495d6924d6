// Reads the request of a container from these sources. The first one that is present and may request decides:
//   1. annotations rdma-init.io/devices[.CONTAINER], /mode, /network
//   2. k8s.volcengine.com/pod-networks, else cni.spidernet.io/rdma-resource-inject, /network-resource-inject
//   3. uverbs nodes in linux.devices under any path, as a device plugin, --device or CDI add them
//   4. a network that 1 or 2 names without HCAs: all HCAs
//   5. "default_devices" of config.json
//   6. RDMA_VISIBLE_DEVICES, MELLANOX_VISIBLE_DEVICES
// 1, 2 and 4 may request only if the operator writes the annotations, or config.json trusts the namespace. Otherwise
// the HCAs that 1 or 2 lists only narrow a later source, and mode and network are ignored. 6 always narrows, and
// requests only with "env_may_request".
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/config/values.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

// The terms that a claim (Kubernetes' Dynamic Resource Allocation) states for an HCA.
struct ClaimTerms {
  std::optional<Mode> mode;            // nullopt: that of the network or pool
  std::optional<std::string> network;  // nullopt: that of the pool
  RdmaLimits limits = {};              // apply where the pool has no lower ones
  friend bool operator==(const ClaimTerms&, const ClaimTerms&) = default;
};
void describe(auto& members, ClaimTerms& terms) {
  members("mode", terms.mode);
  members("network", terms.network);
  members("objects", terms.limits.objects);
  members("handles", terms.limits.handles);
}

struct Request {
  // The requested HCAs; kAll if the nodes in `granted_nodes` are the request. kNone occurs only with `granted_nodes`:
  // the HCAs that the container can open are booked, and none is granted.
  HcaSelection selection;
  // The uverbs nodes in linux.devices. Empty for a container that may use all devices: it has them because it is
  // privileged, not for RDMA.
  std::vector<SpecDevice> granted_nodes;
  bool has_nodes_of_grant = false;  // the nodes in `granted_nodes` are the request; other sources can only narrow it
  std::vector<HcaSelection> narrowed_by;  // each removes the HCAs that it does not select
  std::vector<std::string> order;         // PCI addresses or netdev names of PCIDEVICE_*, which order the HCAs
  std::optional<Mode> mode;
  std::optional<std::string> network;
  // The source that requests rails and names no network: the HCAs' pools choose the network. Empty: there is no such
  // source.
  std::string network_of_pool;
  // Paths of the GPU nodes in linux.devices ("/dev/nvidia0", "/dev/dri/renderD128"), for the selector `gpu`.
  std::vector<std::string> gpu_nodes;
  // GPUs in NVIDIA_VISIBLE_DEVICES, which an image or a pod's author can set. gpu_uuids: the UUIDs in it
  // (fabric::gpu_uuid()); empty for "default_devices" without GPU nodes. gpu_hint: the complete value, if variables may
  // request ("env_may_request").
  std::vector<std::string> gpu_uuids;
  std::optional<std::string> gpu_hint;
  // The terms of the HCAs that the container has by claims, by name. They precede `mode` and `network`. parse_request()
  // leaves it empty, because only the ledger has the claims.
  std::map<std::string, ClaimTerms> claimed = {};
  friend bool operator==(const Request&, const Request&) = default;
};

// Describes the members for records (base/packed_record.hpp).
void describe(auto& members, Request& request) {
  auto& [selection, granted_nodes, has_nodes_of_grant, narrowed_by, order, mode, network, network_of_pool, gpu_nodes,
         gpu_uuids, gpu_hint, claimed] = request;
  members("selection", selection);
  members("granted_nodes", granted_nodes);
  members("has_nodes_of_grant", has_nodes_of_grant);
  members("narrowed_by", narrowed_by);
  members("order", order);
  members("mode", mode);
  members("network", network);
  members("network_of_pool", network_of_pool);
  members("gpu_nodes", gpu_nodes);
  members("gpu_uuids", gpu_uuids);
  members("gpu_hint", gpu_hint);
  members("claimed", claimed);
}

// Returns whether the request names a network: its own, or that of a claim.
bool names_network(const Request& request);

// Returns the names of the HCAs if the request can match only these (exact names, no globs): the inventory then needs
// no other HCA. nullopt: it can match any.
std::optional<std::vector<std::string>> named_hcas(const Request& request);
// Returns the names for one selection, without regard to sources that narrow it.
std::optional<std::vector<std::string>> named_hcas(const HcaSelection& selection);

struct ParsedRequest {
  std::optional<Request> request;     // nullopt: the container requests nothing, or may not request
  std::vector<std::string> warnings;  // for example, that an annotation is ignored
  Note note = {};                     // for example, that the nodes of a privileged container are no request
  // Value of RDMA_INIT_NOTE: which annotation has no effect, why, and the remedy. Empty: each annotation has an effect.
  std::string pod_note = {};
};

// Longest value of RDMA_INIT_NOTE, in bytes.
inline constexpr std::size_t kLongestPodNote = 200;
// Returns the value of RDMA_INIT_NOTE for the warnings about annotations without an effect: one line with the first
// warning and the number of the other warnings. The pod's author determines part of the text, so it is escaped and cut
// to kLongestPodNote. Empty for no warning.
std::string pod_note(const std::vector<std::string>& warnings);

// Reads the request of a container. Errors are refusals: a malformed value, a value over 64 KiB, a count that
// contradicts the given nodes, a device number that the kernel would truncate. Pure.
Result<ParsedRequest> parse_request(const ContainerSpec& spec, const Config& config, Engine engine);

}  // namespace hook
