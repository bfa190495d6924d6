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

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {

struct CountedHca {
  std::string name;
  std::optional<int> numa_node;       // nullopt: none or unknown
  std::vector<std::string> pci_path;  // PCI bridges above the HCA, the root port first
  std::optional<unsigned> uverbs;     // N of its /dev/infiniband/uverbsN
  std::vector<std::string> nodes;     // same paths on the node and in containers: "/dev/infiniband/uverbs0", rdma_cm
  double rate_gbps = 0;               // rate of its fastest port
  bool is_infiniband = false;         // link layer of that port
  // Rail and plane, and PCI address; nullopt: "rails" of config.json states no plane.
  struct Plane {
    unsigned rail = 0;
    unsigned plane = 0;
    std::string pci;
    friend bool operator==(const Plane&, const Plane&) = default;
  };
  std::optional<Plane> plane = {};
  friend bool operator==(const CountedHca&, const CountedHca&) = default;
};

struct CountedDevice {
  std::string id;       // "mlx5_0" for an exclusive HCA, "mlx5_0#2" for a shared one
  std::size_t hca = 0;  // index in Resource::hcas
  std::string problem;  // cause of being unhealthy: "mlx5_0 is held by container web-1"; empty: healthy
  // True if the problem may end by itself: for example, an HCA has no device node or no active port while it moves
  // between network namespaces.
  bool may_pass = false;
  friend bool operator==(const CountedDevice&, const CountedDevice&) = default;
};

// A resource of the kubelet: the HCAs of all pools with this `resource`, and the devices that the kubelet counts.
struct Resource {
  std::string name;
  std::vector<CountedHca> hcas;        // in the order of rails
  std::vector<CountedDevice> devices;  // in the order of rails
  const CountedDevice* find(std::string_view id) const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

// Returns the resources in the order of their names. before: the last announced resources. An announced HCA that is
// no longer on the node stays in its resource: healthy if a pod's grant holds it, because it is then in the pod's
// network namespace, else unhealthy. inventory: its list of HCAs must have been readable. `others` receives
// the names of HCAs that no resource counts because of their rate or link layer (hook::other_kinds_of()).
std::vector<Resource> count_resources(const fabric::Inventory& inventory, const hook::Config& config,
                                      const HcaHolds& holds, const std::vector<Resource>& before,
                                      std::vector<std::string>* others = nullptr);

// Returns true if one of the resources has the HCA.
bool was_announced(const std::vector<Resource>& resources, const std::string& hca);

// Time of the last grant or release of an HCA, by its name.
using Moments = std::map<std::string, std::chrono::steady_clock::time_point>;
// Time after a grant or release during which a new problem of the HCA is not announced if it may pass: a netdev is down
// for some seconds after it has moved. If the kubelet rejects a waiting pod for such a problem, that pod never runs.
inline constexpr std::chrono::seconds kSettling{30};
// Gives each device in `resources` whose new problem must not be announced yet (kSettling) the state that it has in
// `before`. now: the time at which `resources` were read.
void keep_settling(const std::vector<Resource>& before, const Moments& moved, std::chrono::steady_clock::time_point now,
                   std::vector<Resource>& resources);

// Chooses `size` of the available IDs for GetPreferredAllocation, including must_include. Errors: fewer than `size` IDs
// are available; must_include has more IDs, or one that is not available.
// Preferences, the most important first: one ID per HCA; HCAs of the same rate and link layer, because a training job
// cannot combine different ones, and the highest rate of which there are enough; HCAs near each other by PCI path, then
// by NUMA node; different planes of a rail, with PCI addresses in the order of the planes (hook/plan/order.hpp);
// HCAs with most available IDs; rail order. IDs that the resource does not have come last.
Result<std::vector<std::string>> preferred_ids(const Resource& resource, std::span<const std::string> available,
                                               std::span<const std::string> must_include, std::size_t size);

// Returns the HCAs of the devices with these IDs, each once, in rail order. Errors: an ID is unknown; a device is not
// healthy.
Result<std::vector<const CountedHca*>> hcas_of(const Resource& resource, std::span<const std::string> ids);
// Returns true if a container with these HCAs gets CDI device names instead of device nodes. An empty function: every
// container gets device nodes.
using ByCdi = std::function<bool(const std::vector<const CountedHca*>& hcas)>;
// Returns the device nodes of these HCAs, each once.
std::vector<std::string> nodes_of(const std::vector<const CountedHca*>& hcas);

// Returns the file name of the resource's socket in the kubelet's directory: "rdma-init-vke.volcengine.com_rdma.sock".
// The name is short, because the path of a Unix socket has at most 107 bytes.
std::string socket_name(std::string_view resource);

}  // namespace shim
