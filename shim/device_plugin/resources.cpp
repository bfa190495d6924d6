#include "shim/device_plugin/resources.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "base/text_digest.hpp"
#include "hook/plan/choose.hpp"
#include "shim/kubelet/hca_problem.hpp"

namespace shim {
namespace {

using hook::NodeHca;

CountedHca counted(const NodeHca& node, const Result<std::vector<hook::PlannedNode>>& nodes) {
  CountedHca hca{node.name(),
                 node.hca->numa_node,
                 node.hca->pci_path.value_or(std::vector<std::string>()),
                 node.hca->uverbs,
                 {},
                 0,
                 false};
  if (node.entry && node.entry->plane && node.hca->pci)
    hca.plane = {node.entry->rail, *node.entry->plane, *node.hca->pci};
  for (const fabric::Port& port : node.hca->ports) {
    if (port.rate_gbps() <= hca.rate_gbps) continue;
    hca.rate_gbps = port.rate_gbps();
    hca.is_infiniband = port.is_infiniband();
  }
  // The kernel reports -1 for a device without a NUMA node.
  if (hca.numa_node && *hca.numa_node < 0) hca.numa_node.reset();
  if (!nodes) return hca;
  for (const hook::PlannedNode& planned : *nodes)
    hca.nodes.push_back(planned.path);
  return hca;
}

// Adds a device that belongs to the last HCA in resource.hcas.
void add_device(std::string id, const HcaProblem& problem, Resource& resource) {
  const std::string name = base::printable(resource.hcas.back().name);
  resource.devices.push_back({std::move(id), resource.hcas.size() - 1,
                              problem.text.empty() ? "" : name + " " + problem.text, problem.may_pass});
}

void add_devices(const NodeHca& node, const hook::PlanInput& input, const HcaHolds& holds, Resource& resource) {
  const hook::Candidates& among = input.among;
  const auto nodes = nodes_of_hca(node, among);
  const auto terms = hook::terms_for(node, among.request, among.config);
  resource.hcas.push_back(counted(node, nodes));
  const HcaProblem problem = terms ? problem_of(node, *terms, nodes, input) : HcaProblem{terms.error().message};
  if (!terms || terms->mode == hook::Mode::kExclusive) return add_device(node.name(), problem, resource);
  const HcaHold hold = hold_of(holds, node.name());
  const unsigned limit = terms->limit.value_or(1);
  const auto gids = gids_of_children(node, *terms);
  // Announces at most as many devices as the GID table has room for: further devices could never be used.
  const unsigned count = gids ? std::min(limit, gids->slots / gids->per_child) : limit;
  const unsigned free = limit - std::min(limit, hold.foreign.others);
  for (unsigned number = 1; number <= count; ++number) {
    // Held units already have their GIDs. Further devices need free slots in the GID table.
    const bool is_full = gids && number > hold.units + gids->children();
    HcaProblem own = problem;
    if (own.text.empty() && number > free)
      own.text = fmt::format("has {} of {} units allocated outside of Kubernetes", hold.foreign.others, limit);
    if (own.text.empty() && is_full) own.text = gids->text();
    add_device(fmt::format("{}#{}", node.name(), number), own, resource);
  }
}

// Returns the problem of an announced HCA that is no longer on the node, or that has an unknown pool because of a read
// error.
HcaProblem problem_of_missing(const std::string& name, const hook::NodeMap& node, const HcaHolds& holds) {
  if (const NodeHca* there = node.find(name)) return {hook::unknown_pool(*there).message};
  const HcaHold hold = hold_of(holds, name);
  if (hold.foreign.exclusive_owner) return {"is held by " + *hold.foreign.exclusive_owner};
  // A pod's grant holds the HCA, so it is in the pod's network namespace, in use and healthy.
  if (hold.units > 0) return {};
  return {"is no longer on the node", true};
}

void keep_missing(const Resource& before, const hook::NodeMap& node, const HcaHolds& holds, Resource& resource) {
  for (std::size_t at = 0; at < before.hcas.size(); ++at) {
    const CountedHca& hca = before.hcas[at];
    const NodeHca* there = node.find(hca.name);
    if (there && !there->pool_unread) continue;
    const HcaProblem problem = problem_of_missing(hca.name, node, holds);
    resource.hcas.push_back(hca);
    for (const CountedDevice& device : before.devices)
      if (device.hca == at) add_device(device.id, problem, resource);
  }
}

// Returns the nearness of two HCAs: 1 plus the number of common upstream ports; without a common port, 1 on the same
// NUMA node, else 0.
unsigned nearness_of(const CountedHca& one, const CountedHca& other) {
  constexpr unsigned kSameNode = 1;
  const auto [end, ignored] =
      std::mismatch(one.pci_path.begin(), one.pci_path.end(), other.pci_path.begin(), other.pci_path.end());
  const auto shared = static_cast<unsigned>(end - one.pci_path.begin());
  // HCAs below a common PCI port are also on the same NUMA node, so a common port counts more than a common node.
  if (shared > 0) return kSameNode + shared;
  return one.numa_node && one.numa_node == other.numa_node ? kSameNode : 0;
}

// Returns how well an HCA completes the planes of `chosen`. 2: well. 1: its PCI address is not in the order of the
// planes. 0: `chosen` has its plane.
unsigned fits_planes(const std::vector<CountedHca>& hcas, const std::vector<std::size_t>& chosen, std::size_t hca) {
  unsigned fits = 2;
  const auto& own = hcas[hca].plane;
  for (const std::size_t one : chosen) {
    const auto& other = hcas[one].plane;
    if (!own || !other || own->rail != other->rail) continue;
    if (own->plane == other->plane) return 0;
    if ((own->plane < other->plane) != hook::pci_less(own->pci, other->pci)) fits = 1;
  }
  return fits;
}

// The available IDs of each HCA, by the HCA's index in Resource::hcas. HCAs without available IDs have no entry.
using IdsOfHcas = std::map<std::size_t, std::vector<std::string>>;

// Adds count HCAs to chosen, one after the other. Each time adds the HCA that is nearest to all HCAs in chosen. Returns
// the sum of the nearness of the added HCAs, and chosen with the added HCAs.
std::pair<unsigned, std::vector<std::size_t>> nearest(std::vector<std::size_t> chosen, std::size_t count,
                                                      const IdsOfHcas& free, const std::vector<CountedHca>& hcas) {
  unsigned sum = 0;
  std::map<std::size_t, unsigned> others;
  for (const auto& [hca, ids] : free) {
    if (std::ranges::find(chosen, hca) != chosen.end()) continue;
    for (const std::size_t one : chosen)
      others[hca] += nearness_of(hcas[hca], hcas[one]);
    // If chosen is empty, all candidates start with the same nearness.
    others.try_emplace(hca, 0);
  }
  for (; count > 0 && !others.empty(); --count) {
    const auto best = std::ranges::max_element(others, [&](const auto& left, const auto& right) {
      // With equal nearness the HCA with most free IDs is preferred, so that all HCAs fill evenly.
      const auto worth = [&](const auto& hca) {
        return std::tuple(hca.second, fits_planes(hcas, chosen, hca.first), free.at(hca.first).size());
      };
      return worth(left) < worth(right);
    });
    sum += best->second;
    const std::size_t hca = best->first;
    chosen.push_back(hca);
    others.erase(best);
    for (auto& [other, nearness] : others)
      nearness += nearness_of(hcas[other], hcas[hca]);
  }
  return {sum, std::move(chosen)};
}

// Adds HCAs to chosen until it has `count`. If chosen is empty, starts a search at each free HCA and takes the nearest
// set. kMostBeginnings bounds the time on nodes with thousands of VFs.
std::vector<std::size_t> nearest_set(std::vector<std::size_t> chosen, std::size_t count, const IdsOfHcas& free,
                                     const std::vector<CountedHca>& hcas) {
  constexpr std::size_t kMostBeginnings = 32;
  if (count <= chosen.size()) return chosen;
  count -= chosen.size();
  if (!chosen.empty() || count == 1) return nearest(std::move(chosen), count, free, hcas).second;
  std::optional<std::pair<unsigned, std::vector<std::size_t>>> best;
  std::size_t begun = 0;
  for (const auto& [hca, ids] : free) {
    auto set = nearest({hca}, count - 1, free, hcas);
    if (!best || set.first > best->first) best = std::move(set);
    if (++begun == kMostBeginnings) break;
  }
  return best ? std::move(best->second) : std::vector<std::size_t>();
}

// Returns chosen, followed by HCAs of the best kind (rate and link layer) that are near each other. If the best kind
// has too few HCAs, HCAs of the next kind follow.
std::vector<std::size_t> best_set(std::vector<std::size_t> chosen, std::size_t count, const IdsOfHcas& free,
                                  const std::vector<CountedHca>& hcas) {
  using Kind = std::pair<double, bool>;
  const auto kind_of = [&](std::size_t hca) { return Kind(hcas[hca].rate_gbps, hcas[hca].is_infiniband); };
  std::map<Kind, IdsOfHcas> kinds;
  std::map<Kind, std::size_t> sizes;
  for (const auto& [hca, ids] : free) {
    kinds[kind_of(hca)].emplace(hca, ids);
    ++sizes[kind_of(hca)];
  }
  for (const std::size_t hca : chosen)
    if (!free.contains(hca)) ++sizes[kind_of(hca)];
  std::vector<Kind> order;
  order.reserve(kinds.size());
  for (const auto& [kind, ids] : kinds)
    order.push_back(kind);
  const auto of_chosen = [&](const Kind& kind) {
    return std::ranges::any_of(chosen, [&](std::size_t hca) { return kind_of(hca) == kind; });
  };
  // Sorts the kinds: first the kinds with enough HCAs, then the kinds of HCAs that are already chosen, then the kinds
  // with a higher rate.
  const auto worth = [&](const Kind& kind) { return std::tuple(sizes[kind] >= count, of_chosen(kind), kind); };
  std::ranges::sort(order, [&](const Kind& left, const Kind& right) { return worth(left) > worth(right); });
  for (const Kind& kind : order) {
    const std::size_t size = std::min(std::max(count, chosen.size()), chosen.size() + kinds[kind].size());
    chosen = nearest_set(std::move(chosen), size, kinds[kind], hcas);
  }
  return chosen;
}

// Adds IDs until there are `size`, one of each HCA in turn. Call it after each free HCA has given one ID.
void take_again(IdsOfHcas& free, std::size_t size, std::vector<std::string>& ids) {
  for (std::size_t before = 0; before != ids.size();) {
    before = ids.size();
    for (auto& [hca, left] : free) {
      if (left.empty() || ids.size() == size) continue;
      ids.push_back(left.front());
      left.erase(left.begin());
    }
  }
}

}  // namespace

const CountedDevice* Resource::find(std::string_view id) const {
  const auto found = std::ranges::find_if(devices, [&](const CountedDevice& one) { return one.id == id; });
  return found == devices.end() ? nullptr : &*found;
}

bool was_announced(const std::vector<Resource>& before, const std::string& hca) {
  return std::ranges::any_of(before, [&](const Resource& resource) {
    return std::ranges::any_of(resource.hcas, [&](const CountedHca& counted) { return counted.name == hca; });
  });
}

std::vector<Resource> count_resources(const fabric::Inventory& inventory, const hook::Config& config,
                                      const HcaHolds& holds, const std::vector<Resource>& before,
                                      std::vector<std::string>* others) {
  std::map<std::string, Resource> resources;
  for (const hook::Pool& pool : config.pools)
    if (pool.resource) resources[*pool.resource].name = *pool.resource;
  // An empty request is used, so that each HCA's pool alone determines its mode, network and limit.
  const hook::Request nothing;
  const hook::Candidates among(inventory, nothing, config);
  const hook::Holdings foreign = foreign_holdings(holds);
  const hook::PlanInput input{.among = among, .holdings = foreign, .view_directory = {}};
  const auto other_kinds = hook::other_kinds_of(among.node);
  if (others) *others = hook::names_of(other_kinds);
  for (const NodeHca* node : among.node.by_rail()) {
    const bool is_other = std::ranges::find(other_kinds, node) != other_kinds.end();
    // An HCA with another rate or link layer than the HCAs that its resource counts is announced only if it was
    // announced before, because pods may use it, and its link may have come up at a lower rate: a pod cannot select
    // among the HCAs of a resource, and a training job cannot combine such HCAs.
    if (is_other && !was_announced(before, node->name())) continue;
    if (node->pool && node->pool->resource) add_devices(*node, input, holds, resources.at(*node->pool->resource));
  }
  for (const Resource& old : before) {
    if (const auto same = resources.find(old.name); same != resources.end())
      keep_missing(old, among.node, holds, same->second);
  }
  std::vector<Resource> all;
  all.reserve(resources.size());
  for (auto& [name, resource] : resources)
    all.push_back(std::move(resource));
  return all;
}

void keep_settling(const std::vector<Resource>& before, const Moments& moved, std::chrono::steady_clock::time_point now,
                   std::vector<Resource>& resources) {
  for (Resource& resource : resources) {
    const auto old = std::ranges::find_if(before, [&](const Resource& one) { return one.name == resource.name; });
    if (old == before.end()) continue;
    for (CountedDevice& device : resource.devices) {
      CountedHca& hca = resource.hcas[device.hca];
      const auto moment = moved.find(hca.name);
      const CountedDevice* const known = old->find(device.id);
      // Only a new problem is withheld. A problem of `before` that may pass stays announced.
      if (!device.may_pass || !known || known->may_pass || moment == moved.end()) continue;
      if (now - moment->second >= kSettling) continue;
      hca = old->hcas[known->hca];  // the old entry, because the new one may lack the device nodes
      device.problem = known->problem;
      device.may_pass = false;
    }
  }
}

Result<std::vector<std::string>> preferred_ids(const Resource& resource, std::span<const std::string> available,
                                               std::span<const std::string> must_include, std::size_t size) {
  const std::set<std::string> all(available.begin(), available.end());
  const std::set<std::string> must(must_include.begin(), must_include.end());
  if (size > all.size()) return make_error("the kubelet requests {} devices and offers {}", size, all.size());
  if (size < must.size())
    return make_error("the kubelet requests {} devices and names {} that must be among them", size, must.size());
  IdsOfHcas free;
  std::vector<std::string> unknown;
  std::vector<std::size_t> chosen;
  std::vector<std::string> ids;
  for (const CountedDevice& device : resource.devices) {
    if (must.contains(device.id)) {
      ids.push_back(device.id);
      if (std::ranges::find(chosen, device.hca) == chosen.end()) chosen.push_back(device.hca);
    } else if (all.contains(device.id)) {
      free[device.hca].push_back(device.id);
    }
  }
  for (const std::string& id : must) {
    if (!all.contains(id)) return make_error("device `{}` is not available", base::printable(id));
    if (!resource.find(id)) ids.push_back(id);
  }
  // chosen has the HCAs of must_include, and ids has their IDs. For each further ID one more HCA is wanted.
  const std::size_t distinct = chosen.size() + (size - ids.size());
  std::vector<std::size_t> order = best_set(chosen, distinct, free, resource.hcas);
  const std::size_t had = chosen.size();
  for (std::size_t at = had; at < order.size() && ids.size() < size; ++at) {
    ids.push_back(free.at(order[at]).front());
    free.at(order[at]).erase(free.at(order[at]).begin());
  }
  take_again(free, size, ids);
  for (const std::string& id : all)
    if (ids.size() < size && !resource.find(id) && !must.contains(id)) ids.push_back(id);
  return ids;
}

Result<std::vector<const CountedHca*>> hcas_of(const Resource& resource, std::span<const std::string> ids) {
  std::set<std::size_t> places;
  for (const std::string& id : ids) {
    const CountedDevice* device = resource.find(id);
    if (!device) return make_error("{} has no device `{}`", resource.name, base::printable(id));
    // The kubelet may request an unhealthy device, because it allocates from its own list before it reads a new one.
    if (!device->problem.empty()) return Error{device->problem};
    places.insert(device->hca);
  }
  std::vector<const CountedHca*> hcas;
  hcas.reserve(places.size());
  for (const std::size_t place : places)
    hcas.push_back(&resource.hcas[place]);
  return hcas;
}

std::vector<std::string> nodes_of(const std::vector<const CountedHca*>& hcas) {
  std::vector<std::string> nodes;
  for (const CountedHca* hca : hcas) {
    for (const std::string& node : hca->nodes)
      if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

std::string socket_name(std::string_view resource) {
  constexpr std::size_t kLongest = 48;  // a socket path has at most 107 bytes, 32 for /var/lib/kubelet/device-plugins/
  std::string name(resource);
  // A digest is short, and different for each resource.
  if (name.size() > kLongest) name = base::text_digest(name);
  std::ranges::replace(name, '/', '_');
  return "rdma-init-" + name + ".sock";
}

}  // namespace shim
