// NCCL's bootstrap network: the netdev by which the ranks of a job find each other. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/check.hpp"
#include "init/decision.hpp"

namespace init {

// An address with the name that getifaddrs() gives it: its label, if it has one.
struct NetdevAddress {
  const fabric::Netdev* netdev = nullptr;
  const fabric::InterfaceAddress* own = nullptr;
  const std::string& name() const { return own->label.empty() ? netdev->name : own->label; }
};

// Returns all addresses in the order of getifaddrs(): every IPv4 address precedes every IPv6 address. The result points
// into the inventory.
std::vector<NetdevAddress> netdev_addresses(const fabric::Inventory& inventory);

// Returns the netdev that this version of NCCL chooses for its bootstrap by its own rule. Returns nullopt if none fits.
std::optional<std::string> bootstrap_netdev(const fabric::Inventory& inventory, const Settings& settings,
                                            const nccl::Version& version = nccl::kNewest);

// Checks whether a netdev serves the bootstrap and reaches other nodes, and whether NCCL chooses a rail or a netdev
// without carrier although the default route uses another netdev.
Check check_bootstrap(const fabric::Inventory& inventory, const Settings& settings, const Decision& decision);

}  // namespace init
