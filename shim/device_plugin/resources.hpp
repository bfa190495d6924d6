// What the plugin announces: the HCAs of pools that have a resource, as devices that Kubernetes counts. Pure.
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
  std::optional<int> numa_node;       // nullopt: none, or not known
  std::vector<std::string> pci_path;  // upstream ports, root first
  std::optional<unsigned> uverbs;     // N of its uverbsN
  std::vector<std::string> nodes;     // paths, on the node and in containers: "/dev/infiniband/uverbs0", rdma_cm's too
  double rate_gbps = 0;               // of its fastest port
  bool is_infiniband = false;         // that port's link layer
  friend bool operator==(const CountedHca&, const CountedHca&) = default;
};

struct CountedDevice {
  std::string id;       // "mlx5_0" of an exclusive HCA, "mlx5_0#2" of a shared one
  std::size_t hca = 0;  // in Resource::hcas
  std::string problem;  // why it is not healthy: "mlx5_0 is held by container web-1"; empty: it is
  // The problem is the HCA's own state, as while its netdev moves between namespaces: no node, or no active port.
  bool may_pass = false;
  friend bool operator==(const CountedDevice&, const CountedDevice&) = default;
};

// Of one name, of however many pools.
struct Resource {
  std::string name;
  std::vector<CountedHca> hcas;        // in rail order
  std::vector<CountedDevice> devices;  // in that order too
  const CountedDevice* find(std::string_view id) const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

// Of the ledger, by the HCA's name.
struct HcaHold {
  hook::Holding foreign;  // by whom the kubelet does not know: Podman's and Docker's containers
  unsigned units = 0;     // of everybody
};
using HcaHolds = std::map<std::string, HcaHold>;

// In the order of their names. before: what was announced last. An HCA of it that is not on the node any more stays: in
// a pod's network namespace it is healthy, elsewhere it is not. inventory: that which HCAs there are was read. others:
// gets the names of other_kinds_of().
std::vector<Resource> count_resources(const fabric::Inventory& inventory, const hook::Config& config,
                                      const HcaHolds& holds, const std::vector<Resource>& before,
                                      std::vector<std::string>* others = nullptr);

// When an HCA was granted or released last, by its name.
using Moments = std::map<std::string, std::chrono::steady_clock::time_point>;
// How long after that a problem that may pass is no news: the HCA and its netdev are then on their way (a real netdev
// is down for seconds after it has moved), and a waiting pod that the kubelet rejects for it never runs.
inline constexpr std::chrono::seconds kSettling{30};
// Puts what was announced before in the place of such problems. now: the time at which `resources` were read.
void keep_settling(const std::vector<Resource>& before, const Moments& moved, std::chrono::steady_clock::time_point now,
                   std::vector<Resource>& resources);

// What GetPreferredAllocation answers: `size` of the available IDs, with those that must be among them. Distinct HCAs
// as far as they go. First those of one rate and link layer, because a trainer uses no others together: of the rates
// that have enough HCAs the highest, then the next one. Of one rate and link layer those that are nearest to each other
// by their PCI path, then by NUMA node; of equals those with most IDs available, then in rail order. IDs that are not
// known come last. Errors: there are not so many, more must be among them, one of these is not available.
Result<std::vector<std::string>> preferred_ids(const Resource& resource, std::span<const std::string> available,
                                               std::span<const std::string> must_include, std::size_t size);

// The HCAs of these IDs, each once, in rail order. Errors: there is no such device, one of them is not healthy.
Result<std::vector<const CountedHca*>> hcas_of(const Resource& resource, std::span<const std::string> ids);
// Whether a container with these HCAs gets the names of CDI devices in place of nodes; empty: none does.
using ByCdi = std::function<bool(const std::vector<const CountedHca*>& hcas)>;
// Their nodes, each once.
std::vector<std::string> nodes_of(const std::vector<const CountedHca*>& hcas);

// Of the endpoint's socket beside the kubelet's, which has to be short: "rdma-init-vke.volcengine.com_rdma.sock".
std::string socket_name(std::string_view resource);

}  // namespace shim
