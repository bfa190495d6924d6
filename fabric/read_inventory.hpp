// Reads the live machine: /sys/class/infiniband, /sys/class/infiniband_verbs, /dev/infiniband, netlink.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/result.hpp"

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

// What handing out a node's HCAs needs: names, device numbers, PCI place, netdevs, GPUs, and the links of the class
// directories. Opens no device.
struct NodeReadOptions {
  std::string root;  // prefix of /sys, /dev and /proc, as in ReadOptions
  // Only these HCAs: the cost is then theirs and not that of the node's 2,048 VFs. nullopt: all.
  std::optional<std::vector<std::string>> hcas;
  HcaFacts facts;
  // With hcas: the node's other HCAs are in the inventory as well, of which no more is read than this.
  std::optional<HcaFacts> others;
  bool gpus = false;
  bool mad_nodes = false;  // umad and issm
};

// The HCAs of these names that are in another network namespace, and their netdevs, for an exclusive RDMA subsystem: as
// read_node() of kUsualFacts. sys: a mount of sysfs of that namespace. root: the node's own, for PCI.
// Names that are not there are left out; what cannot be read is in Inventory::unread.
Inventory read_hcas_elsewhere(const std::string& root, const std::string& sys, const std::vector<std::string>& names);

// Never fails: what cannot be read is a value in the inventory (unread, rdma_error, net_error).
Inventory read_node(const NodeReadOptions& options);

// The HCA of /dev/infiniband/uverbsN; nullopt: there is none. One attribute is read.
std::optional<std::string> hca_of_uverbs(const std::string& root, unsigned number);

// N of the uverbsN that has a device number of those that the kernel hands out as they come; nullopt: it is another
// device's. One link is read, and none for any other number. Errors: it could not be looked at.
Result<std::optional<unsigned>> uverbs_of_dynamic_number(const std::string& root, std::int64_t major,
                                                         std::int64_t minor);

}  // namespace fabric
