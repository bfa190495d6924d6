// The RDMA hardware of a node, or what a container sees of it, as plain values: everything a decision needs, so that
// nothing after read_inventory() or read_snapshot() has to look at the machine.
//
// Optional members are optional in the snapshot format too: "not known", as opposed to a value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"

namespace fabric {

struct GidEntry {
  unsigned index = 0;
  Address gid;
  std::optional<Attr<std::string>> type;  // "RoCE v2", "IB/RoCE v1"; nullopt: not read
  std::optional<Attr<std::string>> ndev;  // name in the netns of that netdev, maybe not ours; nullopt: not read or none

  bool is_v2() const;
  bool is_v1() const;  // or iWARP's: the type was read, and is not RoCE v2
  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

// kLinkLayer: neither InfiniBand nor Ethernet (EFA, OPA, unknown), which no NCCL_IB_* drives. kNoOwnGid: RoCE without a
// GID of this netns, of RoCE v2 type and an up netdev; OwnAddresses (port_use.hpp) says so.
enum class PortObstacle : std::uint8_t { kNone, kNotActive, kLinkLayer, kNoOwnGid };

struct Port {
  unsigned number = 1;  // counts from 1
  Attr<std::string> state;
  Attr<std::string> phys_state;
  Attr<std::string> link_layer;
  Attr<std::string> rate;
  std::optional<std::string> lid;
  std::optional<std::string> sm_lid;
  std::optional<unsigned> gid_tbl_len;
  std::vector<GidEntry> gids;  // ascending index; empty slots are left out
  bool gids_complete = true;   // false: reading stopped when every GID of this netns had been found, or was not begun
  std::optional<int> gids_error;      // errno that kept the whole table from being read
  std::optional<std::string> netdev;  // the port's own netdev, only when it is in this netns; not in snapshots

  bool is_active() const;
  bool is_infiniband() const;
  bool is_ethernet() const;
  // Gb/s; 0 when the attribute is unreadable or not a number. Decimal: "2.5 Gb/sec (1X SDR)".
  double rate_gbps() const;
  // What keeps it from being used wherever it is: never kNoOwnGid.
  PortObstacle obstacle() const;
  friend bool operator==(const Port&, const Port&) = default;
};

// A management node of a port: umadN or issmN of /sys/class/infiniband_mad.
struct MadNode {
  std::string name;  // "umad0", "issm0"
  std::string dev;   // "MAJ:MIN"
  unsigned port = 1;
  std::string link;  // target of its entry in the class directory
  friend bool operator==(const MadNode&, const MadNode&) = default;
};

struct Hca {
  std::string name;  // verbs name, e.g. mlx5_0
  std::string node_guid;
  std::string node_type;
  std::optional<std::string> pci;  // "0000:0c:00.0"; nullopt for software devices
  std::optional<int> numa_node;    // -1: none
  std::optional<std::string> driver;
  std::optional<std::string> vendor;
  std::optional<std::string> device_id;
  std::optional<std::string> pci_class;
  std::optional<std::string> physfn;  // PCI address of the PF; set for VFs only
  std::optional<std::string> fw_ver;
  std::optional<std::string> parent;      // of rxe: its netdev, as that is called in its own netns
  std::optional<unsigned> uverbs;         // N of uverbsN
  bool uverbs_unknown = false;            // a snapshot that does not say: accessible decides
  std::optional<std::string> uverbs_dev;  // "MAJ:MIN" from sysfs, never computed: uverbs32 and up are dynamic
  std::optional<bool> accessible;         // /dev/infiniband/uverbsN opened
  std::optional<int> access_error;        // errno of that open
  std::optional<std::vector<std::string>> pci_path;  // upstream ports, root first
  std::vector<Port> ports;

  // Known for a live node only (read_node()), never in snapshots: targets of the links in the class directories.
  std::optional<std::string> class_link;  // of /sys/class/infiniband/NAME
  std::optional<std::string> verbs_link;  // of /sys/class/infiniband_verbs/uverbsN
  std::vector<MadNode> mad_nodes;
  bool is_pf = false;                    // it can have virtual functions
  std::vector<std::string> vfs;          // names of their HCAs
  std::optional<std::string> unseen_vf;  // one that somebody may use unseen: "virtfn3, whose HCA is in ..."
  std::vector<std::string> pfs;          // names of the HCAs of its physical function
  bool is_pf_hidden = false;             // one of these is in another network namespace

  bool has_node() const { return uverbs || uverbs_unknown; }
  bool is_accessible() const { return has_node() && accessible.value_or(true); }
  bool is_efa() const;
  bool is_software() const;  // rxe, siw
  bool is_iwarp() const;     // its GIDs are no IP addresses; false where the node type was not read
  friend bool operator==(const Hca&, const Hca&) = default;
};

struct InterfaceAddress {
  Address address;
  std::optional<unsigned> prefix;  // length in bits of its own family; nullopt: none was given
  std::string text;                // as it was written, for snapshots
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// "10.0.0.1/24". A length that is missing, or no number, is left out. nullopt: there is no address in it.
std::optional<InterfaceAddress> parse_interface_address(std::string_view text);

struct Netdev {
  std::string name;
  std::optional<std::string> mac;
  Attr<int> carrier;
  std::optional<std::string> operstate;
  std::optional<std::string> dev_id;
  bool dev_id_null = false;  // snapshot says "dev_id": null
  std::optional<int> dev_port;
  std::optional<int> mtu;
  std::optional<int> type;  // ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
  std::vector<InterfaceAddress> addresses;
  std::optional<bool> in_this_netns;
  std::optional<std::string> pci;
  std::optional<std::string> master;
  std::optional<std::vector<std::string>> slaves;

  // Known for live systems only (netlink), never in snapshots.
  std::optional<std::string> kind;  // IFLA_INFO_KIND: macvlan, ipvlan, vlan, bond, veth, ...
  int ifindex = 0;
  int lower_ifindex = 0;              // IFLA_LINK; 0: none
  std::optional<int> lower_netns_id;  // IFLA_LINK_NETNSID: the lower device lives in another netns
  int master_ifindex = 0;

  bool is_here() const { return in_this_netns.value_or(true); }
  // Up with carrier. Unknown counts as up: an attribute that cannot be read must not cost a rail.
  bool is_up() const;
  friend bool operator==(const Netdev&, const Netdev&) = default;
};

struct Gpu {
  std::string pci;
  std::optional<int> numa_node;
  std::optional<std::vector<std::string>> pci_path;
  std::optional<std::string> uuid = {};  // as gpu_uuid() has it; nullopt: not known
  // Its device nodes below /dev: "nvidia0", "dri/card1", "dri/renderD128". Live nodes only.
  std::vector<std::string> nodes = {};
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// "GPU-" and the UUID in small letters, as nvidia-smi prints it; nullopt: it is none. Of a GPU that nobody uses the
// driver may know none, and says "GPU-" and question marks.
std::optional<std::string> gpu_uuid(std::string_view text);

struct Route {
  std::string dst;  // "default" or a CIDR
  std::string dev;
  unsigned table = 254;  // RT_TABLE_MAIN

  // A default route of the main table.
  bool is_default() const;
  friend bool operator==(const Route&, const Route&) = default;
};

struct Limits {
  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  std::optional<std::uint64_t> memlock_soft;  // bytes
  std::optional<std::uint64_t> memlock_hard;
  std::optional<std::uint64_t> cap_eff;  // bit mask
  std::optional<unsigned> uid;
  std::optional<bool> initial_userns;  // false: capabilities do not count outside of the container's user namespace
  friend bool operator==(const Limits&, const Limits&) = default;
};

// One of infiniband, infiniband_verbs, infiniband_mad below /sys/class.
struct ClassDirectory {
  std::string name;
  // Of those that have device nodes; libibverbs finds no device without it.
  std::optional<std::string> abi_version = {};
  friend bool operator==(const ClassDirectory&, const ClassDirectory&) = default;
};

// What may be there though it could not be read: any failure but those of what is not there. read_node() notes them.
struct Unread {
  enum class Part : std::uint8_t {
    kHcas,    // which HCAs there are, and which uverbs node is whose
    kNodes,   // the number of a device node
    kRdmaCm,  // whether there is /dev/infiniband/rdma_cm, and its number
    kView,    // what a view of sysfs is made of
    kPool,    // what pools select by: ids, driver, link layer, netdevs
    kDetail,  // what informs, and orders HCAs that are all allowed
  };
  Part part = Part::kDetail;
  std::string path;
  int code = 0;          // errno
  std::string hca = {};  // empty: the node's
  friend bool operator==(const Unread&, const Unread&) = default;
};

enum class NetnsMode { kShared, kExclusive };

struct Inventory {
  std::optional<std::string> about;  // JSON text, carried through unread
  std::optional<bool> rdma_cm;
  std::optional<std::string> rdma_cm_dev;         // "MAJ:MIN"; live nodes only
  std::vector<ClassDirectory> class_directories;  // live nodes only
  std::vector<Unread> unread;                     // live nodes only
  std::vector<Hca> hcas;
  std::vector<Netdev> netdevs;
  std::optional<std::vector<Gpu>> gpus;
  std::optional<std::vector<Route>> routes;
  std::optional<NetnsMode> netns_mode;
  std::optional<Limits> limits;
  std::optional<std::map<std::string, std::string>> conf;  // nccl.conf files: path to text
  std::optional<std::map<std::string, std::string>> env;   // variables already set

  // Why hcas is empty, when reading said so: errno of /sys/class/infiniband, ENOENT when no RDMA driver is loaded,
  // ENODEV when there is no sysfs at all.
  std::optional<int> rdma_error;
  // Why netdevs and routes are empty, when netlink could not be asked.
  std::optional<std::string> net_error;

  friend bool operator==(const Inventory&, const Inventory&) = default;
};

// NCCL cannot mix link layers: whether these ports are of both, and which of them a trainer takes.
struct LinkLayers {
  bool mixed = false;
  double infiniband = 0;  // Gb/s, total
  double ethernet = 0;
  // The higher total rate; InfiniBand on a tie.
  bool takes(const Port& port) const { return !mixed || port.is_infiniband() == (infiniband >= ethernet); }
};
// ports: each without an obstacle.
LinkLayers link_layers_of(const std::vector<const Port*>& ports);

// N of "uverbsN" or "/dev/infiniband/uverbsN", of nine digits at most; nullopt: it is neither.
std::optional<unsigned> uverbs_number(std::string_view path_or_name);

// include/rdma/ib_verbs.h and drivers/infiniband/core/uverbs_main.c (Linux 6.1): the first 32 nodes have fixed numbers,
// further ones get a dynamic major.
inline constexpr std::uint32_t kUverbsMajor = 231;
inline constexpr std::uint32_t kUverbsFirstMinor = 192;
inline constexpr unsigned kUverbsFixed = 32;
// N of the uverbsN that has this device number; nullopt: it is not of the fixed ones.
std::optional<unsigned> uverbs_of_number(std::int64_t major, std::int64_t minor);

// The netdev of that name in this netns; nullptr if there is none.
const Netdev* find_netdev(const Inventory& inventory, std::string_view name);
const Hca* find_hca(const Inventory& inventory, std::string_view name);
Hca* find_hca(Inventory& inventory, std::string_view name);
// The netdev that the main table's first default route leaves by (IPv4 before IPv6); nullptr: unknown or none.
const Netdev* default_route_netdev(const Inventory& inventory);

// The device below which a link of a class directory leads: "0000:0c:00.0" for
// "../../devices/pci0000:00/0000:0c:00.0/infiniband/mlx5_0", kNoDevice for a software HCA. Empty: the link has too few
// parts.
std::string_view device_in_link(std::string_view link);
inline constexpr std::string_view kNoDevice = "virtual";

}  // namespace fabric
