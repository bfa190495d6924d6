// Reads a ResourceClaim (resource.k8s.io/v1): the devices of this driver that the scheduler allocated to it, and the
// parameters that the claim or its class states for them. The author of a pod writes claims, so nothing in one is
// trusted. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/claim/claims.hpp"
#include "shim/dra/names.hpp"

namespace shim {

// Parses the JSON text of a claim, as the API server returns it: its devices of this driver, in the order of the
// allocation, without the names of their HCAs, and its consumers that are pods. The `parameters` of an `opaque`
// configuration for this driver are
//   {"apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters", "mode": "shared", "network": "rails",
//    "limits": {"hca_objects": 4096, "hca_handles": 8}}
// "mode" and "network" have the meaning of the annotations rdma-init.io/mode and /network, and the members of "limits"
// that of a pool's "limits" in config.json, which they can only lower. Each can be missing. Another member is an error,
// because a misspelt one would otherwise have no effect.
// Errors: it is no claim of resource.k8s.io/v1; it is not allocated; a name, a UID, a number or a parameter is not
// valid; it has more devices or consumers than the API allows; it has one share twice. The reason of a wrong parameter
// is kRefused.
Result<hook::ClaimOfNode> parse_claim(std::string_view text);

// The identity of a claim, as the kubelet passes it.
struct ClaimKey {
  std::string space;  // namespace; is_dns_label()
  std::string name;   // is_dns_subdomain()
  std::string uid;    // is_uid()
  friend bool operator==(const ClaimKey&, const ClaimKey&) = default;
};

// Checks that a claim of the API server is the one that the kubelet means: a claim that was deleted and made again has
// the same name and another UID. Errors: it is another claim.
Result<void> check_key(const hook::ClaimOfNode& claim, const ClaimKey& wanted);

// Sets the HCAs of the claim's devices. node: the name of the node, and of its pool. Errors: a device is of another
// node, or the node has no such device.
Result<void> find_hcas(hook::ClaimOfNode& claim, const DeviceNames& names, std::string_view node);

}  // namespace shim
