// Netdevs and addresses of a file tree instead of a live netns: /sys/class/net below a root, and addrs.txt with one
// "NETDEV inet|inet6 ADDRESS/PREFIX" a line.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric::tree {

// Empty when the tree has no /sys/class/net.
std::vector<Netdev> read_netdevs(const std::string& root);

// What only sysfs knows of netdevs that netlink has listed: PCI address, dev_id, dev_port.
void add_sysfs_details(const std::string& root, std::vector<Netdev>& netdevs);

}  // namespace fabric::tree
