#include "hook/admin/cluster/fabric_hcas.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "fabric/management_slots.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/rates.hpp"

namespace hook {
namespace {

using Hcas = std::vector<const NodeHca*>;
using fabric::Port;

bool is_port_usable(const Port& port) {
  return port.obstacle() == fabric::PortObstacle::kNone;
}

double rate_of(const NodeHca& node) {
  double rate = 0;
  for (const Port& port : node.hca->ports)
    if (is_port_usable(port)) rate = std::max(rate, port.rate_gbps());
  return rate;
}

bool by_pci(const NodeHca* left, const NodeHca* right) {
  const auto& first = left->hca->pci;
  const auto& second = right->hca->pci;
  if (first && second) return *first != *second && pci_less(*first, *second);
  if (first.has_value() != second.has_value()) return first.has_value();
  return base::natural_less(left->name(), right->name());
}

// Applies the rules by which rdma-init chooses ports (docs/rdma-init.md), in their order, to the HCAs of a node.
class FabricChooser {
 public:
  FabricChooser(const fabric::Inventory& inventory, const NodeMap& map)
      : route_(fabric::default_route_netdev(inventory)) {
    for (const NodeHca& node : map.hcas())
      chosen_.used.push_back(&node);
    std::ranges::sort(chosen_.used, by_pci);
  }

  FabricHcas run() {
    const Hcas all = chosen_.used;
    drop([](const NodeHca& node) { return node.hca->is_efa(); },
         "an EFA device: NCCL drives it through aws-ofi-nccl, and no configuration of rdma-init grants it");
    drop([](const NodeHca& node) { return node.hca->is_iwarp(); }, "an iWARP device, which has no GIDs of addresses");
    drop([](const NodeHca& node) { return !node.hca->has_node(); }, "has no device node: load the module ib_uverbs");
    drop([](const NodeHca& node) { return std::ranges::none_of(node.hca->ports, is_port_usable); },
         "has no ACTIVE port");
    set_management_aside();
    choose_link_layer();
    avoid([](const NodeHca& node) { return node.hca->is_software(); }, "a software RDMA device beside hardware");
    leave_fast_default_route();
    choose_rate();
    leave_default_route();
    leave_physical_functions();
    find_down(all);
    return std::move(chosen_);
  }

 private:
  using Test = std::function<bool(const NodeHca&)>;

  void drop(const Test& test, const std::string& reason) {
    std::erase_if(chosen_.used, [&](const NodeHca* node) {
      if (!test(*node)) return false;
      chosen_.left_out.push_back({node, reason});
      return true;
    });
  }

  // Drops the HCAs that match the test, unless all of them match.
  void avoid(const Test& test, const std::string& reason) {
    if (!std::ranges::all_of(chosen_.used, [&](const NodeHca* node) { return test(*node); })) drop(test, reason);
  }

  void set_management_aside() {
    std::vector<const fabric::Hca*> hcas;
    for (const NodeHca* node : chosen_.used)
      hcas.push_back(node->hca);
    const auto management = fabric::management_slots(hcas);
    avoid([&](const NodeHca& node) { return management.has(*node.hca); },
          "an NVSwitch management function (four or more HCAs of one PCI slot)");
  }

  void choose_link_layer() {
    std::vector<const Port*> ports;
    for (const NodeHca* node : chosen_.used)
      for (const Port& port : node->hca->ports)
        if (is_port_usable(port)) ports.push_back(&port);
    const auto layers = fabric::link_layers_of(ports);
    if (!layers.mixed) return;
    drop(
        [&](const NodeHca& node) {
          return std::ranges::none_of(node.hca->ports,
                                      [&](const Port& port) { return is_port_usable(port) && layers.takes(port); });
        },
        layers.infiniband >= layers.ethernet ? "Ethernet, and InfiniBand has the higher total rate"
                                             : "InfiniBand, and Ethernet has the higher total rate");
  }

  void choose_rate() {
    double highest = 0;
    for (const NodeHca* node : chosen_.used)
      highest = std::max(highest, rate_of(*node));
    for (const NodeHca* node : Hcas(chosen_.used))
      if (rate_of(*node) < highest)
        drop([&](const NodeHca& one) { return &one == node; },
             fmt::format("{} Gb/s is below the highest rate, {} Gb/s", rate_of(*node), highest));
  }

  bool is_of_default_route(const NodeHca& node) const {
    return route_ && std::ranges::find(node.netdevs, route_->name) != node.netdevs.end();
  }

  void leave_default_route() {
    if (!route_) return;
    avoid([&](const NodeHca& node) { return is_of_default_route(node); },
          fmt::format("{} carries the default route", base::printable(route_->name)));
  }

  void leave_fast_default_route() {
    fabric::Rates route;
    fabric::Rates rails;
    for (const NodeHca* node : chosen_.used)
      (is_of_default_route(*node) ? route : rails).add(rate_of(*node));
    if (hides_rails(route, rails)) leave_default_route();
  }

  // A container with the physical function would control the VFs of other containers.
  void leave_physical_functions() {
    std::set<std::string> parents;
    for (const NodeHca* node : chosen_.used)
      if (node->hca->physfn) parents.insert(*node->hca->physfn);
    drop([&](const NodeHca& node) { return node.hca->pci && parents.contains(*node.hca->pci); },
         "a physical function whose virtual functions are granted");
  }

  void find_down(const Hcas& all) {
    std::set<std::string_view> active_slots;
    for (const NodeHca* node : all)
      if (node->is_active() && node->hca->pci) active_slots.insert(fabric::pci::slot_of(*node->hca->pci));
    const auto is_of_kind = [&](const NodeHca& node) {
      if (node.is_active() || !node.hca->pci || active_slots.contains(fabric::pci::slot_of(*node.hca->pci)))
        return false;
      return std::ranges::any_of(chosen_.used, [&](const NodeHca* one) {
        return node.hca->device_id && one->hca->device_id == node.hca->device_id &&
               one->hca->vendor == node.hca->vendor && one->is_infiniband() == node.is_infiniband();
      });
    };
    std::erase_if(chosen_.left_out, [&](const FabricHcas::LeftOut& one) {
      if (!is_of_kind(*one.hca) || !one.hca->hca->has_node()) return false;
      chosen_.down.push_back(one.hca);
      return true;
    });
    std::ranges::sort(chosen_.down, by_pci);
  }

  const fabric::Netdev* route_;  // nullptr: none
  FabricHcas chosen_;
};

}  // namespace

std::vector<const NodeHca*> FabricHcas::all() const {
  Hcas hcas = used;
  hcas.insert(hcas.end(), down.begin(), down.end());
  std::ranges::sort(hcas, by_pci);
  return hcas;
}

FabricHcas fabric_hcas(const fabric::Inventory& inventory, const NodeMap& map) {
  return FabricChooser(inventory, map).run();
}

}  // namespace hook
