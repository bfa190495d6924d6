#include <set>

#include "fabric/text.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

using fabric::Netdev;
using fabric::Port;

// Those that have GIDs on the port: of its netdev, or of the bond that has it.
std::vector<const Netdev*> netdevs_of(const fabric::Inventory& inventory, const Port& port) {
  std::vector<const Netdev*> netdevs;
  const Netdev* netdev = port.netdev ? find_netdev(inventory, *port.netdev) : nullptr;
  if (netdev) netdevs.push_back(netdev);
  if (netdev && netdev->master) netdev = find_netdev(inventory, *netdev->master);
  if (netdev && netdev != netdevs.front()) netdevs.push_back(netdev);
  return netdevs;
}

}  // namespace

void tell_node_addresses(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan) {
  const fabric::Inventory& inventory = input.among.inventory;
  const bool is_exclusive = inventory.netns_mode == fabric::NetnsMode::kExclusive;
  if (input.host_network || !plan.netdevs.empty() || is_exclusive) return;
  std::vector<std::string> told;
  for (const NodeHca* node : granted) {
    for (const Port& port : node->hca->ports) {
      if (!port.is_active() || !port.is_ethernet()) continue;
      if (port.netdev && input.moved_netdevs.contains(*port.netdev)) continue;  // with its addresses
      std::set<fabric::Address> addresses;
      for (const Netdev* netdev : netdevs_of(inventory, port)) {
        for (const fabric::InterfaceAddress& own : netdev->addresses)
          if (!own.address.is_link_local()) addresses.insert(own.address);
      }
      for (const fabric::Address& address : addresses)
        told.push_back(fmt::format("{}:{}={}", node->name(), port.number, to_string(address)));
    }
  }
  if (!told.empty()) plan.env["RDMA_INIT_NODE_ADDRESSES"] = fabric::join(told, ",");
}

}  // namespace hook
