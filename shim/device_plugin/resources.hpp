// Derives the devices that the plugin announces: the HCAs of pools that have a `resource`. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "shim/result.hpp"

namespace shim {

struct CountedHca {
  std::string name;
  std::optional<int> numa_node;       // nullopt: none or unknown
  std::vector<std::string> pci_path;  // upstream ports, root first
  std::optional<unsigned> uverbs;     // N of its uverbsN
  std::vector<std::string> nodes;     // same paths on the node and in containers: "/dev/infiniband/uverbs0", rdma_cm
  double rate_gbps = 0;               // of its fastest port
  bool is_infiniband = false;         // link layer of that port
  friend bool operator==(const CountedHca&, const CountedHca&) = default;
};

struct CountedDevice {
  std::string id;       // "mlx5_0" for an exclusive HCA, "mlx5_0#2" for a shared one
  std::size_t hca = 0;  // index in Resource::hcas
  std::string problem;  // cause of being unhealthy: "mlx5_0 is held by container web-1"; empty: healthy
  // The problem is a state of the HCA that may pass, for example no node or no active port while its netdev moves
  // between namespaces.
  bool may_pass = false;
  friend bool operator==(const CountedDevice&, const CountedDevice&) = default;
};

// The devices of all pools with this resource name.
struct Resource {
  std::string name;
  std::vector<CountedHca> hcas;        // in rail order
  std::vector<CountedDevice> devices;  // in rail order
  const CountedDevice* find(std::string_view id) const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

// The units of an HCA that are held, as the ledger records them.
struct HcaHold {
  hook::Holding foreign;  // owners unknown to the kubelet: containers of Podman and Docker
  unsigned units = 0;     // of all owners
};
using HcaHolds = std::map<std::string, HcaHold>;

// Returns the resources in the order of their names. before: the last announced resources. An announced HCA that is
// no longer on the node stays: healthy if it is in a pod's network namespace, else unhealthy. inventory: its list of
// HCAs must have been readable. `others`: receives the names of other_kinds_of().
std::vector<Resource> count_resources(const fabric::Inventory& inventory, const hook::Config& config,
                                      const HcaHolds& holds, const std::vector<Resource>& before,
                                      std::vector<std::string>* others = nullptr);

// Time of the last grant or release of an HCA, by its name.
using Moments = std::map<std::string, std::chrono::steady_clock::time_point>;
// Time after a grant or release during which new problems that may pass are withheld: a netdev is down for seconds
// after it has moved. If the kubelet rejects a waiting pod for such a problem, the pod never runs.
inline constexpr std::chrono::seconds kSettling{30};
// Replaces withheld problems by the announced state. now: the time at which `resources` were read.
void keep_settling(const std::vector<Resource>& before, const Moments& moved, std::chrono::steady_clock::time_point now,
                   std::vector<Resource>& resources);

// Chooses `size` of the available IDs for GetPreferredAllocation, including must_include. Errors: fewer IDs are
// available; more IDs must be included; such an ID is not available.
// Order of preference: distinct HCAs; HCAs of one rate and link layer, because a trainer cannot combine different ones,
// with the highest rate that has enough HCAs first; HCAs that are nearest by PCI path, then by NUMA node; HCAs with
// most available IDs; rail order. Unknown IDs come last.
Result<std::vector<std::string>> preferred_ids(const Resource& resource, std::span<const std::string> available,
                                               std::span<const std::string> must_include, std::size_t size);

// Returns the HCAs of these IDs, each once, in rail order. Errors: no such device; a device is not healthy.
Result<std::vector<const CountedHca*>> hcas_of(const Resource& resource, std::span<const std::string> ids);
// Returns true if a container with these HCAs gets CDI device names instead of nodes. Empty: no container does.
using ByCdi = std::function<bool(const std::vector<const CountedHca*>& hcas)>;
// Returns the nodes of these HCAs, each once.
std::vector<std::string> nodes_of(const std::vector<const CountedHca*>& hcas);

// Returns the file name of the resource's socket in the kubelet's directory: "rdma-init-vke.volcengine.com_rdma.sock".
// The name is short, because sun_path has 108 bytes.
std::string socket_name(std::string_view resource);

}  // namespace shim
