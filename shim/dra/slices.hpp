// Derives the ResourceSlices of a node: the HCAs that the scheduler of Kubernetes assigns to claims (Dynamic Resource
// Allocation, resource.k8s.io/v1, Kubernetes 1.34 and later). Pure.
//
// The node has one pool, with one device for each HCA of the pools of config.json: "pool" is an attribute, because an
// HCA that two of Kubernetes' pools had would be assigned twice. Slices and devices are in the order of rails, because
// the scheduler takes the first device that fits.
//
// Kubernetes 1.34 and 1.35 drop `allowMultipleAllocations` in silence, and a shared HCA would become an exclusive one.
// A device for each share would not help: a request for 8 devices could get two shares of one HCA, because the
// constraint that excludes this (distinctAttribute) is dropped too, and the job would run with half of its rails. So
// these versions get exclusive HCAs only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/book.hpp"
#include "shim/dra/names.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {

inline constexpr unsigned kFirstDraMinor = 34;  // Kubernetes 1.34: resource.k8s.io/v1
// Kubernetes 1.36 keeps `taints` and `allowMultipleAllocations`, which older versions drop unless a gate is on.
inline constexpr unsigned kFirstSharingMinor = 36;

// Facts of the cluster for the slices of a node.
struct SliceCluster {
  std::string node;                     // name of the Node object: is_dns_subdomain()
  std::string node_uid;                 // its UID; empty: it is not known, and the slices have no owner
  unsigned minor = kFirstSharingMinor;  // version of Kubernetes, 1.MINOR; at least kFirstDraMinor
  bool keeps_all() const { return minor >= kFirstSharingMinor; }  // taints and sharing
};

struct PublishedDevice {
  std::string name;
  std::string hca;
  base::Json json;  // an entry of `devices` of a ResourceSlice
  // Why the device must not be assigned now, as a predicate of the HCA; empty: it can be.
  std::string problem = {};
  bool is_held = false;  // the problem is another owner, so a claim that has the device is not concerned
};

struct PublishedDevices {
  std::vector<PublishedDevice> devices;  // in the order of rails
  // One for each HCA of a pool that is not published or has a taint, with the reason; one if no HCA is in a pool.
  std::vector<std::string> warnings;
  std::size_t left_out = 0;  // number of HCAs of pools that are not published
};

// Returns the names for all HCAs, also those that are not published. devices: the device by which the ledger knows an
// HCA, which no rename changes. An HCA without an entry, of a snapshot, has a name by its PCI address or own name.
DeviceNames device_names(const fabric::Inventory& inventory, const hook::HcaDevices& devices);

// Returns the HCAs to publish. names: device_names() of the inventory. holds: `foreign` has the holds of all owners
// except claims.
// An HCA that Kubernetes must not assign gets a taint, and is left out before Kubernetes 1.36. An HCA of another rate
// or link layer than its pool (hook::other_kinds_of()) is left out.
PublishedDevices published_devices(const fabric::Inventory& inventory, const hook::Config& config,
                                   const DeviceNames& names, const HcaHolds& holds, const SliceCluster& cluster);

// Returns the number of devices for a log or probe: "8 devices in slices of node n1". If there is none, the text has
// the number of HCAs that are left out.
std::string published_text(std::size_t devices, std::size_t left_out, const std::string& node);

// Returns the ResourceSlices with these devices, at least one: an empty slice reports that the driver runs and has no
// device. A slice has at most 64 devices, and 128 before Kubernetes 1.36; so a taint never moves devices to another
// slice. The name of a slice follows from its number and the node.
std::vector<base::Json> resource_slices(const std::vector<PublishedDevice>& devices, const SliceCluster& cluster);

}  // namespace shim
