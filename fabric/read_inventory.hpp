// Reads the live machine: /sys/class/infiniband, /sys/class/infiniband_verbs, /dev/infiniband and netlink.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

// How much of the GID tables of usable ports is read.
enum class GidTables : std::uint8_t {
  // The first port with GIDs of this network namespace is read as with kFromFirst, and the other ports only in the
  // slots of these GIDs. If a port has its GIDs in other slots, every port is read as with kFromFirst.
  kUsual,
  kFromFirst,  // from the first slot to the last GID that this network namespace can own
  kWhole,
};

struct ReadOptions {
  // Prefix of /sys, /dev and /proc. Any value other than "" is a file tree, such as a copy from another machine:
  // addresses come from its addrs.txt and /sys/class/net, and netlink is not used.
  std::string root;
  // false: read only the facts that the choice of ports needs. The GID tables of unusable ports are not read. true:
  // read every fact of the snapshot format, with complete GID tables.
  bool full = false;
  GidTables tables = GidTables::kUsual;  // without effect with `full`
  // Read all netdevs of this network namespace. false: if there are many, only those that concern the usable ports, and
  // the netdev of the default route.
  bool all_netdevs = false;
  // true: the tree has the sysfs of this machine, as the root file system of a container that is being prepared. Then
  // addresses come from netlink.
  bool live = false;
};

// Reads the RDMA hardware that is visible to this process. Returns a failed read as a value in the inventory
// (rdma_error, net_error, Attr, gids_error). Does not fork or start threads. Opens each uverbs node once with O_RDWR,
// as libibverbs will do, and closes it.
Inventory read_inventory(const ReadOptions& options);

// Adds node GUID, PCI vendor, PCI device and PF of each HCA, which read_inventory() reads only with `full`.
void read_models(const std::string& root, Inventory& inventory);

// Reads the netdevs and addresses of a file tree: /sys/class/net below root (if missing: an empty list), and
// addrs.txt with one "NETDEV inet|inet6 ADDRESS/PREFIX" per line.
std::vector<Netdev> read_tree_netdevs(const std::string& root);

}  // namespace fabric
