// Reads the HCAs of the live node, or of a file tree, for the allocation to containers: from /sys/class/infiniband and
// the other class directories of RDMA, and by netlink.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"

namespace fabric {

// Options for the allocation of a node's HCAs: names, device numbers, PCI location, netdevs, GPUs, and the links of the
// class directories. No device node is opened.
struct NodeReadOptions {
  std::string root;  // prefix of /sys, /dev and /proc; as ReadOptions::root in read_inventory.hpp
  // Read only these HCAs. The cost then does not grow with the node's VFs, 2,048 on large nodes. nullopt: all.
  std::optional<std::vector<std::string>> hcas;
  HcaFacts facts;
  // With hcas: add the node's other HCAs to the inventory, with these facts only.
  std::optional<HcaFacts> others;
  bool gpus = false;
  bool mad_nodes = false;  // umad and issm nodes
  friend bool operator==(const NodeReadOptions&, const NodeReadOptions&) = default;
};

// Reads the named HCAs and their netdevs in another network namespace. Use it if the RDMA subsystem is in exclusive
// mode: then each HCA is visible in one namespace only. The facts are those of read_node() with kUsualFacts. root:
// prefix of the node, for PCI. sys: a mount of sysfs of that namespace. names: a name that does not exist there is
// skipped.
// Returns failed reads in Inventory::unread.
Inventory read_hcas_elsewhere(const std::string& root, const std::string& sys, const std::vector<std::string>& names);

// Reads of the named HCAs of the node what identifies them in the ledger (HcaFacts::identity). A name that does not
// exist is skipped. root: prefix of the node's /sys. Returns failed reads in Inventory::unread.
Inventory read_identities(const std::string& root, const std::vector<std::string>& names);

// Reads the node's HCAs for allocation. Returns a failed read as a value of the inventory (unread, rdma_error,
// net_error).
Inventory read_node(const NodeReadOptions& options);

// Attributes of sysfs that stay open, for a process that reads the same ones again and again.
class OpenAttributes {
 public:
  // Reads an attribute below `directory`, as Directory::read() does. An open attribute belongs to the device that had
  // the name when it was opened; a read fails after the device was removed. So the caller checks first that the name
  // still leads to the device.
  Attr<std::string> read(const base::Directory& directory, const std::string& path);

 private:
  std::map<std::string, base::UniqueFd> open_;
};

// Files that refresh_node() keeps open between its calls for one inventory.
struct OpenNode {
  std::optional<rdma_sysfs::Classes> classes;
  OpenAttributes attributes;
};

// Brings an inventory of read_node() with these options up to date, in the facts about which the kernel sends no event:
// reads the RDMA network namespace mode and, if the usable ports differ in their link layers, rates. Returns false if
// the node must be read again, because one of these differs or cannot be read: the names, devices and uverbs nodes of
// the HCAs, the states of their ports, the GIDs by which RoCE ports are usable.
bool refresh_node(const NodeReadOptions& options, Inventory& inventory, OpenNode& open);

// Reads only `facts` of each HCA, and the GPUs if `gpus` is set: no device node, and no fact of the node as a whole.
// Reads one NUMA node for all HCAs below the same upstream ports. Returns failed reads as read_node() does. links:
// links that an earlier process read; gets those of this survey; nullptr: each link is read.
Inventory survey_node(const std::string& root, const HcaFacts& facts, bool gpus,
                      rdma_sysfs::KnownLinks* links = nullptr);

// Reads the states of ports, one HCA at a time. root: as in NodeReadOptions.
class PortStates {
 public:
  explicit PortStates(const std::string& root);
  // Returns whether a port of the HCA is ACTIVE. A state that cannot be read is not ACTIVE.
  bool has_active(const std::string& hca) const;

 private:
  std::optional<base::Directory> infiniband_;
};

// Returns the HCA of /dev/infiniband/uverbsN, nullopt if there is none. Reads one attribute.
std::optional<std::string> hca_of_uverbs(const std::string& root, unsigned number);

// Returns the device of /dev/infiniband/uverbsN, as device_in_link() does: it stays the same when the HCA is renamed.
// Reads one link. Errors: EINVAL, a file tree has a directory in place of the link; ENOENT, there is no such node in
// this network namespace; another code of readlink(2).
Result<std::string> device_of_uverbs(const std::string& root, unsigned number);

// Returns N of the uverbsN node with this dynamic device number. Returns nullopt if the number is not dynamic, or
// belongs to another device or to none. Reads one link if the major is dynamic, otherwise none. Errors: the link cannot
// be read.
Result<std::optional<unsigned>> uverbs_of_dynamic_number(const std::string& root, std::int64_t major,
                                                         std::int64_t minor);

}  // namespace fabric
