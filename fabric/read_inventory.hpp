// Reads the live machine: /sys/class/infiniband, /sys/class/infiniband_verbs, /dev/infiniband, netlink.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

struct ReadOptions {
  // Prefix of /sys, /dev and /proc. Anything else than "" is a file tree: addresses then come from addrs.txt and
  // /sys/class/net below it, and netlink is not asked.
  std::string root;
  // false: only what choosing ports needs; GID slots are read until every GID that this netns can own on a port has
  // been found, and not at all on ports that cannot be used anyway. true: everything the snapshot format knows.
  bool full = false;
  // Every slot of the tables of the ports that could be used, without the rest of full.
  bool whole_tables = false;
};

// Never fails: what cannot be read is a value in the inventory (rdma_error, net_error, Attr, gids_error).
// No fork, no thread. Each uverbs node is opened O_RDWR once and closed, which is what libibverbs will do.
Inventory read_inventory(const ReadOptions& options);

// Netdevs and addresses of a file tree: /sys/class/net below root (empty without it), and addrs.txt with one "NETDEV
// inet|inet6 ADDRESS/PREFIX" a line.
std::vector<Netdev> read_tree_netdevs(const std::string& root);

}  // namespace fabric
