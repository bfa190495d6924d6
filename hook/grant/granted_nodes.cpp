#include "hook/grant/granted_nodes.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

bool is_node(const SpecDevice& device, const PlannedNode& node) {
  return device.type == 'c' && node.major && node.minor && device.major == *node.major && device.minor == *node.minor;
}

std::string number_of(const SpecDevice& device) {
  return fmt::format("{} {}:{}", device.type, device.major, device.minor);
}

struct HcaNodes {
  std::string hca;
  std::vector<PlannedNode> nodes;  // the HCA's nodes, uverbsN first
  bool is_granted = false;
};

Result<std::vector<HcaNodes>> nodes_by_hca(const ContainerRequest& requesting, const std::vector<PlannedHca>& granted,
                                           const NodeMap& map, const fabric::Inventory& inventory) {
  NodeOptions own = requesting.admin.nodes;
  own.rdma_cm = false;
  std::vector<HcaNodes> all;
  for (const NodeHca& node : map.hcas()) {
    if (!node.hca->uverbs) continue;
    const bool is_granted =
        std::ranges::any_of(granted, [&](const PlannedHca& hca) { return hca.name == node.name(); });
    auto nodes = TRY(planned_nodes(own, inventory, {&node}));
    all.push_back({node.name(), std::move(nodes), is_granted});
  }
  return all;
}

// Returns the HCA to which a device node belongs; nullptr: to no HCA of the inventory.
const HcaNodes* owner_of_device(const SpecDevice& device, const std::vector<HcaNodes>& all) {
  const auto has_it = [&](const HcaNodes& hca) {
    return std::ranges::any_of(hca.nodes, [&](const PlannedNode& node) { return is_node(device, node); });
  };
  const auto found = std::ranges::find_if(all, has_it);
  return found == all.end() ? nullptr : &*found;
}

std::string owner_text(const HcaNodes* owner) {
  return owner ? fmt::format("a node of `{}`", base::printable(owner->hca)) : "a node of no HCA of this node";
}

Error changed(std::string message) {
  return {std::move(message), 0,
          "find what changed the container's devices after rdma-nri (a later NRI plugin, CDI), and keep it from "
          "/dev/infiniband",
          FailureReason::kRefused};
}

}  // namespace

Result<void> check_granted_nodes(const ContainerRequest& requesting, const std::vector<PlannedHca>& granted,
                                 const fabric::Inventory& inventory) {
  const NodeMap map(inventory, requesting.admin);
  const auto all = TRY(nodes_by_hca(requesting, granted, map, inventory));
  // First check: the container's node at each path of a granted HCA must still be the granted device.
  for (const HcaNodes& hca : all) {
    for (const PlannedNode& node : hca.nodes) {
      for (const SpecDevice& device : requesting.spec.devices) {
        if (!hca.is_granted || device.path != node.path || is_node(device, node)) continue;
        return changed(fmt::format("the container's `{}` is {}, {}; granted is `{}`, c {}:{}", node.path,
                                   number_of(device), owner_text(owner_of_device(device, all)),
                                   base::printable(hca.hca), node.major.value_or(0), node.minor.value_or(0)));
      }
    }
  }
  std::vector<std::string> names;
  names.reserve(granted.size());
  for (const PlannedHca& hca : granted)
    names.push_back(base::printable(hca.name));
  // Second check: each uverbs node of the container, under any path, must belong to a granted HCA.
  for (const SpecDevice& device : requesting.request->granted_nodes) {
    const HcaNodes* const owner = owner_of_device(device, all);
    if (!owner || owner->is_granted) continue;
    return changed(fmt::format("the container's `{}` is {}, {}; granted is {}", base::printable(device.path),
                               number_of(device), owner_text(owner), base::join(names, ", ")));
  }
  return {};
}

}  // namespace hook
