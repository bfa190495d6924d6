// HCAs and their ports from /sys/class/infiniband (kernel Documentation/ABI/stable/sysfs-class-infiniband, 6.12).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/sysfs.hpp"

namespace fabric {

// What is read of an HCA. A node may have thousands (VFs), each fact costs one to five system calls of each HCA, and a
// request depends on few. The name is always known.
struct HcaFacts {
  bool pci = true;         // its address, and the link in the class directory
  bool node = true;        // device nodes and their links, the states of the ports
  bool guid = false;       // node GUID
  bool vendor = false;     // PCI ids
  bool device_id = false;  //
  bool driver = false;     // driver, physical function, of software devices the node type
  bool link_layer = false;
  bool netdevs = false;  // of the ports, and their masters
  bool place = false;    // NUMA node, upstream PCI ports
  bool rate = false;
  bool gids = false;  // whole GID tables
  bool vfs = false;   // the HCAs of its virtual functions
  bool pfs = false;   // the HCAs of its physical function
  // Of ACTIVE ports the link layer; where the HCAs' differ, the rates too. For what a trainer could use.
  bool use = false;
  // With `use`, of ACTIVE RoCE ports: the netdev, and whether a GID is of an address of this netns. Where there is such
  // a port, the inventory has all netdevs of this netns with their addresses.
  bool own_gids = false;
  bool gid_types = false;  // else, with `use`, of ACTIVE RoCE ports: their GIDs until one is of RoCE v2
  bool addresses = false;  // of the ports' netdevs, where there is an ACTIVE RoCE port
  friend bool operator==(const HcaFacts&, const HcaFacts&) = default;

  bool of_ports() const { return node || link_layer || netdevs || rate || gids || use; }
  bool beyond_pci() const { return of_ports() || guid || vendor || device_id || driver || place || vfs || pfs; }
};

inline constexpr HcaFacts kNameOnly{.pci = false, .node = false};
// But GID tables.
inline constexpr HcaFacts kUsualFacts{.guid = true,
                                      .vendor = true,
                                      .device_id = true,
                                      .driver = true,
                                      .link_layer = true,
                                      .netdevs = true,
                                      .place = true,
                                      .rate = true};

namespace rdma_sysfs {

// What RDMA netlink says of the HCAs that it lists.
struct PortNetdevs {
  std::set<std::string> hcas;
  std::map<std::pair<std::string, unsigned>, std::string> netdevs;  // by HCA and port, only netdevs of this netns
};

// Appends it, unless code says that it is not there: ENOENT; ENODEV, which an attribute gives whose device went away
// (kernfs, and ibdev of uverbs_main.c; Linux 6.12); ENOTDIR, below a file that stands among the devices, as
// /sys/class/infiniband_verbs/abi_version does. Nowhere to note it, or 0: nothing.
void note_unread(std::vector<Unread>* unread, Unread unreadable);

// The class directories of one sysfs, each opened once; nullopt: there is no such class, or it was not asked for.
struct Classes {
  // Opens infiniband alone: without it nothing else is looked at. sys: "/sys", or what another network namespace has.
  explicit Classes(std::string sys);
  // mad: what depends on it; nullopt: it is not opened.
  void open_nodes(std::optional<Unread::Part> mad_part, std::vector<Unread>* unread = nullptr);
  // The HCAs' names, in natural order.
  std::vector<std::string> names(std::vector<Unread>* unread = nullptr) const;

  std::string sys;
  std::optional<sysfs::Directory> infiniband;
  std::optional<sysfs::Directory> verbs;
  std::optional<sysfs::Directory> mad;
  int error = 0;  // as Inventory::rdma_error; 0: infiniband is open
};

struct Scan {
  const Classes& classes;
  std::string root;
  bool full = false;
  bool whole_tables = false;  // of GIDs; false: until those of this netns were met, with hand_out one of them
  bool first_v2 = false;      // of GIDs, until one is of RoCE v2, whosever
  const std::vector<Netdev>* netdevs = nullptr;
  // What RDMA netlink said; nullptr: it could not be asked, sysfs has to do.
  const PortNetdevs* port_netdevs = nullptr;
  HcaFacts facts = kUsualFacts;  // of netdevs and GIDs only with hand_out
  // For handing HCAs out (read_node()): device numbers and links, each port's netdev as sysfs names it. No device node
  // is opened.
  bool hand_out = false;
  const std::vector<std::string>* wanted = nullptr;  // with hand_out: of all other names only other_facts are read
  HcaFacts other_facts = {};
  bool mad_nodes = false;                 // with hand_out: umad and issm
  std::vector<Unread>* unread = nullptr;  // with hand_out
};

// Whether a netdev stands for a VF or subfunction: in switchdev mode phys_port_name is "pf0vf3" or "pf0sf88", and "p0"
// for a function's own (devlink, Linux 6.12); unreadable, so "", outside of that mode.
bool is_representor(std::string_view phys_port_name);

// The GIDs of a port of the HCA, until one is met that makes it usable in the netns of scan.netdevs, or none can be; or
// as scan.first_v2 has it.
void read_some_gids(const Scan& scan, const std::string& hca, Port& port);

// The named HCAs, as far as they are still there.
std::vector<Hca> read_hcas(const Scan& scan, const std::vector<std::string>& names);

}  // namespace rdma_sysfs
}  // namespace fabric
