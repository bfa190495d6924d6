// What is read of an HCA. A node may have thousands (VFs), each fact costs one to five system calls of each HCA, and a
// request depends on few.
#pragma once

namespace fabric {

// The name is always known.
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

}  // namespace fabric
