// Reads HCAs and their ports from /sys/class/infiniband.
// Source: Documentation/ABI/stable/sysfs-class-infiniband, Linux 6.12.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "fabric/inventory.hpp"
#include "fabric/known_links.hpp"

namespace fabric {

// Selects the facts to read about an HCA. A node may have thousands of HCAs (VFs), each fact costs one to five system
// calls per HCA, and a request depends on few facts. The name is always read.
struct HcaFacts {
  bool pci = true;         // PCI address, and the link in the class directory
  bool node = true;        // device nodes and their links, port states
  bool guid = false;       // node GUID
  bool vendor = false;     // PCI vendor
  bool device_id = false;  // PCI device
  bool driver = false;     // driver, PCI address of the PF; for software devices, the node type
  bool link_layer = false;
  bool netdevs = false;  // netdevs of the ports, and their masters
  bool place = false;    // NUMA node, upstream PCI ports
  bool rate = false;
  bool gids = false;  // complete GID tables
  bool vfs = false;   // the HCAs of its VFs
  bool pfs = false;   // the HCAs of its PF
  // The link layers of ACTIVE ports, and their rates if the link layers differ. A training program chooses its ports by
  // these facts.
  bool use = false;
  // With `use`: the netdev of each ACTIVE RoCE port, and whether the port has a GID with an address of this network
  // namespace. If there is an ACTIVE RoCE port, the inventory has its netdevs with their addresses: the ports' netdevs
  // and their masters, or all netdevs of this namespace if a port is not usable with the addresses of the former.
  bool own_gids = false;
  // With `use` and without own_gids: GIDs with type, of ACTIVE RoCE ports, up to the first RoCE v2 GID.
  bool gid_types = false;
  bool addresses = false;  // addresses of the ports' netdevs, if there is an ACTIVE RoCE port
  // The facts by which the ledger identifies an HCA: the link in the class directory and, of a software HCA, the node
  // GUID. `node` includes them.
  bool identity = false;
  friend bool operator==(const HcaFacts&, const HcaFacts&) = default;

  bool of_ports() const { return node || link_layer || netdevs || rate || gids || use; }
  bool beyond_pci() const { return of_ports() || guid || vendor || device_id || driver || place || vfs || pfs; }
};

inline constexpr HcaFacts kNameOnly{.pci = false, .node = false};
// Every fact that a request usually needs. GID tables cost one read per slot and are not among them.
inline constexpr HcaFacts kUsualFacts{.guid = true,
                                      .vendor = true,
                                      .device_id = true,
                                      .driver = true,
                                      .link_layer = true,
                                      .netdevs = true,
                                      .place = true,
                                      .rate = true};

// The facts by which rdma-init chooses ports. Models are not among them: rdma-init reads them only if they decide
// (read_models()).
inline constexpr HcaFacts kChoiceFacts{.driver = true, .link_layer = true, .rate = true};

namespace rdma_sysfs {

// An answer of RDMA netlink about HCAs and their ports.
struct PortNetdevs {
  std::set<std::string> hcas;  // HCAs that netlink lists
  // Names of the netdevs of this namespace, by HCA and port.
  std::map<std::pair<std::string, unsigned>, std::string> netdevs;
  // The prefixes of InfiniBand subnets by HCA and port: 8 bytes in network byte order.
  std::map<std::pair<std::string, unsigned>, std::string> subnets;
};

// Appends `unreadable` to `unread`. Does nothing if `unread` is nullptr, if the code is 0, or if the code proves that
// the file does not exist. Three codes prove this: ENOENT; ENODEV, which an attribute returns after its device was
// removed (kernfs; ibdev in uverbs_main.c, Linux 6.12); and ENOTDIR, for a path below a plain file such as
// /sys/class/infiniband_verbs/abi_version.
void note_unread(std::vector<Unread>* unread, Unread unreadable);

// The class directories of one sysfs, each opened once. nullopt: the class does not exist, or the caller did not
// request it.
struct Classes {
  // Opens only `infiniband`, because without HCAs the other directories are not needed. sys: "/sys", or a mount of
  // sysfs of another network namespace.
  explicit Classes(std::string sys);
  // Opens infiniband_verbs, and infiniband_mad if mad_part is set. Failures are added to `unread`. mad_part: the part
  // of the inventory that is incomplete if infiniband_mad cannot be opened.
  void open_nodes(std::optional<Unread::Part> mad_part, std::vector<Unread>* unread = nullptr);
  // Returns the names of the HCAs in natural order. A failure is added to `unread`. links: begins a survey.
  std::vector<std::string> names(std::vector<Unread>* unread = nullptr, KnownLinks* links = nullptr) const;

  std::string sys;
  std::optional<base::Directory> infiniband;
  std::optional<base::Directory> verbs;
  std::optional<base::Directory> mad;
  int error = 0;  // value of Inventory::rdma_error; 0: infiniband is open
};

// Parameters of read_hcas() and read_some_gids().
struct Scan {
  const Classes& classes;
  std::string root;  // prefix of /sys, and of /dev without hand_out, which opens no device node
  bool full = false;
  // Read complete GID tables. false: stop when every GID that this netns can own is found; with hand_out, when the
  // first GID that this netns can own is found.
  bool whole_tables = false;
  // Read only the slots in which another port of the machine has its GIDs, if they are enough (GidTables::kUsual).
  bool usual_slots = false;
  bool first_v2 = false;                         // stop after the first GID of type RoCE v2, in any netns
  const std::vector<Netdev>* netdevs = nullptr;  // read_hcas() uses them only with `full` or facts.gids
  // The answer of RDMA netlink. nullptr: netlink is not available, and sysfs is read in its place.
  const PortNetdevs* port_netdevs = nullptr;
  // Returns the names of the netdevs of this network namespace that belong to a device; nullopt if they are not known.
  // device: the result of device_directory() for an HCA. Empty function: the directory of the device is read.
  std::function<std::optional<std::vector<std::string>>(std::string_view device)> netdevs_of_device = {};
  HcaFacts facts = kUsualFacts;  // netdevs, gids, place and own_gids have an effect only with hand_out
  // true: read what the allocation of HCAs needs (read_node()): device numbers and links, and the netdev of each port
  // by its name in sysfs. Open no device node.
  bool hand_out = false;
  // With hand_out: names of the HCAs to read with `facts`; all other HCAs are read with `other_facts`. nullptr: all
  // HCAs are read with `facts`.
  const std::vector<std::string>* wanted = nullptr;
  HcaFacts other_facts = {};
  bool mad_nodes = false;                 // with hand_out: read the umad and issm nodes too
  std::vector<Unread>* unread = nullptr;  // receives the failed reads, with hand_out
  KnownLinks* links = nullptr;            // with hand_out: links of HCAs of which no other fact is read
};

// Returns true if the netdev represents a VF or subfunction. In switchdev mode, phys_port_name is "pf0vf3" or "pf0sf88"
// for a representor and "p0" for the function itself. In other modes it is unreadable, and the caller passes "".
// Source: devlink, Linux 6.12.
bool is_representor(std::string_view phys_port_name);

// Reads GIDs of a port of the HCA. Stops at the first GID that makes the port usable in the network namespace of
// scan.netdevs, or when no further GID can do so. With scan.first_v2, stops at the first GID of type RoCE v2.
void read_some_gids(const Scan& scan, const std::string& hca, Port& port);

// Completes the HCAs that read_hcas() read without `full` and hand_out: removes the netdevs of ports that are not in
// scan.netdevs, reads the GIDs of the ports that this process can use, subnet and P_Key of InfiniBand ports, and the
// node type if it matters. May be called again with more netdevs.
void read_gids_in_use(const Scan& scan, std::vector<Hca>& hcas);

// Reads node GUID, PCI vendor, PCI device and PF of the HCAs.
void read_models(const Classes& classes, std::vector<Hca>& hcas);

// Reads the named HCAs. Names that no longer exist are left out. An HCA that was renamed, or moved to another network
// namespace, during the read is left out too, and scan.unread receives ESTALE for it.
std::vector<Hca> read_hcas(const Scan& scan, const std::vector<std::string>& names);

}  // namespace rdma_sysfs
}  // namespace fabric
