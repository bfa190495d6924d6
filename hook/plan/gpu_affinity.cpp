#include "hook/plan/match.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

using fabric::Gpu;
using fabric::Inventory;

std::vector<const Gpu*> by_pci(const Inventory& inventory) {
  std::vector<const Gpu*> gpus;
  if (!inventory.gpus) return gpus;
  for (const Gpu& gpu : *inventory.gpus)
    gpus.push_back(&gpu);
  std::ranges::sort(gpus, [](const Gpu* left, const Gpu* right) { return pci_less(left->pci, right->pci); });
  return gpus;
}

// Returns the number of the GPU that a device node's name has: 3 for "nvidia3" and "dri/renderD131". Returns nullopt
// for "dri/cardN": the display of a BMC has a card node too, so N can differ from the GPU's number.
std::optional<std::size_t> ordinal(std::string_view node) {
  constexpr std::string_view kRender = "dri/renderD";
  constexpr std::size_t kFirstRender = 128;
  if (node.starts_with(kRender)) {
    const auto number = base::parse_number<unsigned>(node.substr(kRender.size()));
    return number && *number >= kFirstRender ? std::optional(*number - kFirstRender) : std::nullopt;
  }
  const auto number = node.starts_with("nvidia") ? base::parse_number<unsigned>(node.substr(6)) : std::nullopt;
  return number ? std::optional<std::size_t>(*number) : std::nullopt;
}

void add(std::vector<const Gpu*>& gpus, const Gpu* gpu) {
  if (std::ranges::find(gpus, gpu) == gpus.end()) gpus.push_back(gpu);
}

std::vector<const Gpu*> gpus_of_nodes(const std::vector<const Gpu*>& all, const std::vector<std::string>& paths) {
  // The inventory of a live node has the device nodes of each GPU, so their names identify the GPU. A snapshot can lack
  // them. Then the number in the name of a device node identifies the GPU.
  const bool nodes_known = std::ranges::any_of(all, [](const Gpu* gpu) { return !gpu->nodes.empty(); });
  std::vector<const Gpu*> gpus;
  for (const std::string& path : paths) {
    const std::string_view node = std::string_view(path).substr(path.starts_with("/dev/") ? 5 : 0);
    const auto number = ordinal(node);
    if (!nodes_known && number && *number < all.size()) add(gpus, all[*number]);
    for (const Gpu* gpu : all)
      if (std::ranges::find(gpu->nodes, node) != gpu->nodes.end()) add(gpus, gpu);
  }
  return gpus;
}

std::vector<const Gpu*> gpus_of_uuids(const std::vector<const Gpu*>& all, const std::vector<std::string>& uuids) {
  std::vector<const Gpu*> gpus;
  for (const Gpu* gpu : all)
    if (gpu->uuid && std::ranges::find(uuids, *gpu->uuid) != uuids.end()) gpus.push_back(gpu);
  return gpus;
}

// Returns the GPUs that are in both lists; all of `gpus` if none is in both.
std::vector<const Gpu*> narrowed(const std::vector<const Gpu*>& gpus, const std::vector<const Gpu*>& named) {
  std::vector<const Gpu*> left;
  std::ranges::copy_if(gpus, std::back_inserter(left),
                       [&](const Gpu* gpu) { return std::ranges::find(named, gpu) != named.end(); });
  return left.empty() ? gpus : left;
}

// Returns the GPUs of a list of indices, counted by PCI address as nvidia-smi does. A list with another entry, such as
// `all` or a UUID, selects none.
std::vector<const Gpu*> gpus_of_hint(const std::vector<const Gpu*>& all, std::string_view hint) {
  std::vector<const Gpu*> gpus;
  for (const std::string_view entry : base::split(hint, ',')) {
    const auto index = base::parse_number<std::size_t>(base::trim(entry));
    if (!index) return {};
    // NVIDIA_VISIBLE_DEVICES can name GPUs that this node does not have.
    if (*index < all.size()) add(gpus, all[*index]);
  }
  return gpus;
}

// Nearness of an HCA to a GPU: first the number of bridges above both devices, then whether both have the same NUMA
// node. An unknown fact counts as far.
struct Nearness {
  std::size_t common_path = 0;
  bool same_numa = false;
  friend auto operator<=>(const Nearness&, const Nearness&) = default;
};

Nearness nearness(const fabric::Hca& hca, const Gpu& gpu) {
  Nearness near;
  if (hca.pci_path && gpu.pci_path) {
    const auto [end, ignored] =
        std::mismatch(hca.pci_path->begin(), hca.pci_path->end(), gpu.pci_path->begin(), gpu.pci_path->end());
    near.common_path = static_cast<std::size_t>(end - hca.pci_path->begin());
  }
  near.same_numa = hca.numa_node && *hca.numa_node >= 0 && hca.numa_node == gpu.numa_node;
  return near;
}

std::vector<std::size_t> in_listed_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// Returns for each GPU the indices of all HCAs, the nearest first. With 2,048 VFs, a search for the nearest remaining
// HCA at each step would be too slow, so each GPU's list is sorted once.
std::vector<std::vector<std::size_t>> orders_by_gpu(const std::vector<const NodeHca*>& hcas,
                                                    const std::vector<const Gpu*>& gpus) {
  std::vector<std::vector<std::size_t>> orders;
  for (const Gpu* gpu : gpus) {
    std::vector<Nearness> near;
    near.reserve(hcas.size());
    for (const NodeHca* node : hcas)
      near.push_back(nearness(*node->hca, *gpu));
    auto& order = orders.emplace_back(in_listed_order(hcas.size()));
    std::ranges::stable_sort(order, [&](std::size_t left, std::size_t right) { return near[left] > near[right]; });
  }
  return orders;
}

}  // namespace

Result<std::vector<const Gpu*>> container_gpus(const Inventory& inventory, const Request& request) {
  const std::vector<const Gpu*> all = by_pci(inventory);
  const std::vector<const Gpu*> named = gpus_of_uuids(all, request.gpu_uuids);
  std::vector<const Gpu*> gpus = named;
  if (!request.gpu_nodes.empty()) {
    gpus = narrowed(gpus_of_nodes(all, request.gpu_nodes), named);
  } else if (request.gpu_uuids.empty() && request.gpu_hint) {
    gpus = gpus_of_hint(all, *request.gpu_hint);
  }
  if (!gpus.empty()) return gpus;
  const auto& asked = request.gpu_nodes.empty() ? request.gpu_uuids : request.gpu_nodes;
  Error error = asked.empty()
                    ? make_error("no GPU of the container is known")
                    : make_error("none of the node's {} GPUs is `{}`", all.size(), base::printable(asked.front()));
  error.hint =
      "give the container its GPUs as device nodes (--device, CDI or a device plugin), or name HCAs; from "
      "NVIDIA_VISIBLE_DEVICES only indices count, with \"env_may_request\" (for \"default_devices\" also UUIDs, except "
      "of a MIG device)";
  return error;
}

std::vector<const Gpu*> gpus_to_be_near(const Inventory& inventory, const Request& request) {
  if (request.gpu_nodes.empty() && request.gpu_uuids.empty()) return {};
  auto found = container_gpus(inventory, request);
  return found ? *std::move(found) : std::vector<const Gpu*>();
}

std::vector<const NodeHca*> nearest(const std::vector<const NodeHca*>& hcas, const Gpu& gpu) {
  std::vector<const NodeHca*> best;
  Nearness best_nearness;
  for (const NodeHca* node : hcas) {
    const Nearness near = nearness(*node->hca, gpu);
    // All equally near HCAs are returned: the caller selects those with free units.
    if (best.empty() || near > best_nearness) {
      best.clear();
      best_nearness = near;
    }
    if (near == best_nearness) best.push_back(node);
  }
  return best;
}

bool is_nearer(const NodeHca& left, const NodeHca& right, const std::vector<const Gpu*>& gpus) {
  return std::ranges::any_of(gpus,
                             [&](const Gpu* gpu) { return nearness(*left.hca, *gpu) > nearness(*right.hca, *gpu); });
}

std::vector<const NodeHca*> by_nearness(const std::vector<const NodeHca*>& hcas, const std::vector<const Gpu*>& gpus) {
  return first_near(hcas, gpus, hcas.size(), [](const NodeHca&) { return true; });
}

std::vector<const NodeHca*> first_near(const std::vector<const NodeHca*>& hcas, const std::vector<const Gpu*>& gpus,
                                       std::size_t most, const std::function<bool(const NodeHca&)>& accept) {
  auto orders = orders_by_gpu(hcas, gpus);
  if (orders.empty()) orders.push_back(in_listed_order(hcas.size()));
  std::vector<const NodeHca*> first;
  std::vector<bool> seen(hcas.size(), false);
  std::vector<std::size_t> next(orders.size(), 0);
  for (std::size_t turn = 0; first.size() < most; turn = (turn + 1) % orders.size()) {
    std::size_t& at = next[turn];
    const std::size_t before = first.size();
    for (; at < hcas.size() && first.size() == before; ++at) {
      const std::size_t i = orders[turn][at];
      if (seen[i]) continue;
      seen[i] = true;
      if (accept(*hcas[i])) first.push_back(hcas[i]);
    }
    // Each order has all HCAs, so the end of one means that every HCA was seen.
    if (first.size() == before) break;
  }
  return first;
}

}  // namespace hook
