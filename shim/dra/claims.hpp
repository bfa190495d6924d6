// Reads a ResourceClaim (resource.k8s.io/v1): the devices of this driver that the scheduler allocated to it, and the
// parameters that the claim or its class states for them. The author of a pod writes claims, so nothing in one is
// trusted. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "shim/dra/names.hpp"

namespace shim {

// `parameters` of an `opaque` configuration for this driver:
//   {"apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters", "mode": "shared", "network": "rails",
//    "limits": {"hca_objects": 4096, "hca_handles": 8}}
// "mode" and "network" have the meaning of the annotations rdma-init.io/mode and /network, and the members of "limits"
// that of a pool's "limits" in config.json, which they can only lower. Each can be missing. Another member is an error,
// because a misspelt one would otherwise have no effect.
struct HcaParameters {
  std::optional<hook::Mode> mode;      // nullopt: that of the network or pool
  std::optional<std::string> network;  // nullopt: that of the pool; is_config_name()
  hook::RdmaLimits limits = {};
  friend bool operator==(const HcaParameters&, const HcaParameters&) = default;
};

// A device of this driver in the allocation of a claim.
struct ClaimedDevice {
  std::string request;    // name of the claim's request, without that of a subrequest; is_dns_label()
  std::string pool;       // the name of a node; is_dns_subdomain()
  std::string device;     // PublishedDevice::name; is_dns_label()
  std::string share_id;   // is_uid(); empty: the claim has the device alone
  unsigned units = 1;     // consumed capacity "shares"
  bool is_admin = false;  // access for monitoring, which reserves nothing
  HcaParameters parameters = {};
  friend bool operator==(const ClaimedDevice&, const ClaimedDevice&) = default;
};

// A consumer of a claim (`reservedFor`) that is a pod.
struct ClaimPod {
  std::string name;
  std::string uid;  // is_uid()
  friend bool operator==(const ClaimPod&, const ClaimPod&) = default;
};

// The identity of a claim, as the kubelet passes it.
struct ClaimKey {
  std::string space;  // namespace; is_dns_label()
  std::string name;   // is_dns_subdomain()
  std::string uid;    // is_uid()
  friend bool operator==(const ClaimKey&, const ClaimKey&) = default;
};

struct Claim {
  ClaimKey key;
  std::vector<ClaimedDevice> devices;  // in the order of the allocation; empty: all are of other drivers
  std::vector<ClaimPod> pods;          // consumers of another kind, such as a PodGroup, are left out
  friend bool operator==(const Claim&, const Claim&) = default;
};

// Parses the JSON text of a claim, as the API server returns it. Errors: it is no claim of resource.k8s.io/v1; it is
// not allocated; a name, a UID, a number or a parameter is not valid; it has more devices or consumers than the API
// allows; it has one share twice.
Result<Claim> parse_claim(std::string_view text);

// Checks that a claim of the API server is the one that the kubelet means: a claim that was deleted and made again has
// the same name and another UID. Errors: it is another claim.
Result<void> check_key(const Claim& claim, const ClaimKey& wanted);

// An HCA of a claim on this node.
struct ClaimedHca {
  std::string hca;
  const ClaimedDevice* device = nullptr;  // a device of the claim, which must outlive it
};
// Finds the HCAs of the claim's devices. node: the name of the node, and of its pool. Errors: a device is of another
// node, or the node has no such device.
Result<std::vector<ClaimedHca>> claimed_hcas(const Claim& claim, const DeviceNames& names, std::string_view node);

}  // namespace shim
