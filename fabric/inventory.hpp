// The RDMA hardware of a node, or the part of it that is visible in a container, as plain values. read_inventory(),
// read_node() and read_snapshot() fill it; all later decisions use these values only and never read the machine.
//
// nullopt means "not known", unless the member's comment gives another meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"

namespace fabric {

// The GID indices that a queue pair can use: sgid_index of ibv_global_route is one byte (rdma-core 59,
// libibverbs/verbs.h), although a table may be longer.
inline constexpr unsigned kUsableGids = 256;

struct GidEntry {
  unsigned index = 0;
  Address gid;
  std::optional<Attr<std::string>> type;  // "RoCE v2", "IB/RoCE v1"; nullopt: it was not read
  std::optional<Attr<std::string>> ndev;  // name in the netdev's own netns; nullopt: unknown or none

  bool is_v2() const;
  bool is_v1() const;  // the type was read and is not RoCE v2: RoCE v1 or iWARP
  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

// Why a port cannot be used.
// kLinkLayer: the link layer is neither InfiniBand nor Ethernet (EFA, OPA, unknown). No NCCL_IB_* variable drives it.
// kNoOwnGid: a RoCE port without a GID of type RoCE v2 that is the address of an up netdev in this network namespace.
// OwnAddresses detects this obstacle, and obstacle_of_rail() predicts it (port_use.hpp).
enum class PortObstacle : std::uint8_t { kNone, kNotActive, kLinkLayer, kNoOwnGid };

struct Port {
  unsigned number = 1;  // the kernel numbers ports from 1
  Attr<std::string> state;
  Attr<std::string> phys_state;
  Attr<std::string> link_layer;
  Attr<std::string> rate;
  std::optional<std::string> lid;
  std::optional<std::string> sm_lid;
  // InfiniBand: the P_Keys in the form of sysfs, "0xffff", by index from 0, without the empty entries at the end. The
  // later entries may be missing: reading ends at the first full member unless all are needed. nullopt: not read.
  std::optional<std::vector<std::string>> pkeys;
  std::optional<unsigned> gid_tbl_len;
  std::vector<GidEntry> gids;         // ascending index, without empty slots
  bool gids_complete = true;          // false: the GID table was not read to its end, or not at all
  bool gids_skipped = false;          // true: slots before the last one of `gids` were not read (GidTables::kUsual)
  std::optional<int> gids_error;      // errno of opening the GID table, or of its last unreadable slot
  std::optional<std::string> netdev;  // the port's own netdev if it is in this netns; not in snapshots
  std::optional<Address> subnet;      // InfiniBand: the prefix of its subnet, if no GID was read; not in snapshots

  bool is_active() const;
  bool is_infiniband() const;
  bool is_ethernet() const;
  // Returns the rate in Gb/s, 0 if the attribute is unreadable or not a number. The kernel prints decimals: "2.5 Gb/sec
  // (1X SDR)".
  double rate_gbps() const;
  // Returns the obstacle that applies in every network namespace, therefore never kNoOwnGid.
  PortObstacle obstacle() const;
  // InfiniBand: returns the prefix of the port's subnet, the upper 64 bits of its first GID. Two subnets with different
  // prefixes have no path between them without a router. nullopt: not known.
  std::optional<Address> subnet_prefix() const;
  // Returns the P_Key at the index: the partition in 15 bits, and kFullMember. nullopt: not known, or the index has
  // none.
  std::optional<unsigned> pkey_at(std::size_t index) const;
  // InfiniBand: returns true if the port knows a subnet manager, so that one has configured the link.
  bool has_subnet_manager() const;
  friend bool operator==(const Port&, const Port&) = default;
};

// The bit of a P_Key for full members of a partition. Two limited members cannot communicate (InfiniBand specification
// 1.5, 10.9.1).
inline constexpr unsigned kFullMember = 0x8000;

// A device node of a port for management datagrams: umadN or issmN of /sys/class/infiniband_mad.
struct MadNode {
  std::string name;  // "umad0", "issm0"
  std::string dev;   // "MAJ:MIN"
  unsigned port = 1;
  std::string link;  // target of its entry in the class directory
  friend bool operator==(const MadNode&, const MadNode&) = default;
};

// The file with which libibverbs opens an HCA, and the versions of the kernel's ABI that it accepts.
struct VerbsProvider {
  std::string path;
  unsigned min = 0;
  unsigned max = 0;
  bool accepts(unsigned version) const { return version >= min && version <= max; }
  friend bool operator==(const VerbsProvider&, const VerbsProvider&) = default;
};

struct Hca {
  std::string name;  // verbs name, such as mlx5_0
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
  std::optional<std::string> parent;      // rxe only: its netdev, by the name in the netdev's netns
  std::optional<unsigned> uverbs;         // the number N of uverbsN
  bool uverbs_unknown = false;            // true: the snapshot has no key `uverbs`; only `accessible` counts
  std::optional<std::string> uverbs_dev;  // "MAJ:MIN" from sysfs; from uverbs32 on it is dynamic
  std::optional<bool> accessible;         // whether open() of /dev/infiniband/uverbsN succeeded
  std::optional<int> access_error;        // errno of a failed open() of /dev/infiniband/uverbsN
  bool is_elsewhere = false;              // RDMA netlink of this network namespace lacks the HCA; not in snapshots
  std::optional<unsigned>
      abi_version;  // ABI version of the HCA's driver; libibverbs compares it with the provider's range
  std::optional<VerbsProvider> provider;             // rdma-init only; nullopt: libibverbs may load another one
  std::optional<std::vector<std::string>> pci_path;  // upstream PCI ports, root first
  std::vector<Port> ports;

  // Only read_node() and read_hcas_elsewhere() set these members; snapshots lack them. A link is the target of the
  // entry in the class directory.
  std::optional<std::string> class_link;  // target of the link /sys/class/infiniband/NAME
  std::optional<std::string> verbs_link;  // target of the link /sys/class/infiniband_verbs/uverbsN
  std::vector<MadNode> mad_nodes;
  bool is_pf = false;                    // true: the function can have VFs
  std::vector<std::string> vfs;          // names of the HCAs of the function's VFs
  std::optional<std::string> unseen_vf;  // a VF that may be in use although its HCA is not visible, for messages
  std::vector<std::string> pfs;          // names of the HCAs of the VF's physical function
  bool is_pf_hidden = false;             // an HCA of its PF is in another network namespace
  std::string device = {};               // device_in_link() of the class link; empty unless read_node() read it
  bool is_name_only = false;             // only its name was read (HcaFacts::pci)

  bool has_node() const { return uverbs || uverbs_unknown; }
  bool is_accessible() const { return has_node() && accessible.value_or(true); }
  // Returns true if libibverbs rejects its provider, so that no program finds the HCA.
  bool is_rejected() const { return provider && abi_version && !provider->accepts(*abi_version); }
  bool is_efa() const;
  // Returns true if the node GUID was read and is zero, as that of a VF until the PF's driver has a GUID for it.
  bool has_zero_guid() const;
  bool is_software() const;  // rxe, siw
  bool is_iwarp() const;     // the HCA's GIDs are no IP addresses; false if the node type was not read
  friend bool operator==(const Hca&, const Hca&) = default;
};

struct InterfaceAddress {
  Address address;
  std::optional<unsigned> prefix;  // bits of its own family; nullopt: no prefix length
  std::string text;                // original text, for snapshots
  // Snapshots have these members as one text, by the words of ip-address(8).
  std::optional<Address> peer = {};  // the other end of a point-to-point link
  bool tentative = false;            // the address's duplicate detection has not ended, and it is not optimistic
  bool dad_failed = false;           // the duplicate detection found the address on another host
  bool deprecated = false;           // the address's preferred lifetime has ended
  std::string label = {};            // IPv4: the name that getifaddrs() gives it; empty: the netdev's name

  // Returns the address of which the kernel makes a GID: on IPv4 the peer (enum_netdev_ipv4_ips() of
  // drivers/infiniband/core/roce_gid_mgmt.c, Linux 6.12).
  const Address& of_gid() const { return peer && address.is_ipv4() ? *peer : address; }
  // Returns true if a connection can use its GID. The kernel has a GID for each address at once, also for one that must
  // not be used yet, or that is the peer's.
  bool serves() const { return !tentative && !dad_failed && of_gid() == address; }
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// Parses an address with an optional prefix length, such as "10.0.0.1/24". A prefix length that is not a number becomes
// nullopt. Returns nullopt if the text does not start with an address.
std::optional<InterfaceAddress> parse_interface_address(std::string_view text);

struct Netdev {
  std::string name;
  std::optional<std::string> mac;
  Attr<int> carrier;
  std::optional<std::string> operstate;
  std::optional<std::string> dev_id;
  bool dev_id_null = false;  // the snapshot has "dev_id": null
  std::optional<int> dev_port;
  std::optional<int> mtu;
  std::optional<int> type;  // ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
  std::vector<InterfaceAddress> addresses;
  std::optional<bool> in_this_netns;
  std::optional<std::string> pci;
  std::optional<std::string> master;
  std::optional<std::vector<std::string>> slaves;

  // Only netlink sets all of these members. A file tree has only `ifindex`, and a snapshot has none of them.
  std::optional<std::string> kind;  // IFLA_INFO_KIND: macvlan, ipvlan, vlan, bond, veth, ...
  int ifindex = 0;
  int lower_ifindex = 0;              // IFLA_LINK; 0: none
  std::optional<int> lower_netns_id;  // IFLA_LINK_NETNSID: the lower device is in another netns
  int master_ifindex = 0;

  bool is_here() const { return in_this_netns.value_or(true); }
  // Returns the name by which programs that call getifaddrs() find the netdev: the label of its first IPv4 address, or
  // its own name.
  const std::string& socket_name() const;
  // Returns true if the netdev is up and has carrier. An unreadable carrier counts as up, so that a failed read does
  // not exclude an HCA. The exception is EINVAL: it proves that the netdev is down.
  bool is_up() const;
  friend bool operator==(const Netdev&, const Netdev&) = default;
};

struct Gpu {
  std::string pci;
  std::optional<int> numa_node;
  std::optional<std::vector<std::string>> pci_path;
  std::optional<std::string> uuid = {};  // form of gpu_uuid(); nullopt: not known
  // Device nodes below /dev: "nvidia0", "dri/card1", "dri/renderD128". Snapshots lack them.
  std::vector<std::string> nodes = {};
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// Returns "GPU-" and the UUID in lower case, as nvidia-smi prints it. Returns nullopt for any other text: the driver
// may print question marks as digits for a GPU that is not in use.
std::optional<std::string> gpu_uuid(std::string_view text);

struct Route {
  std::string dst;  // "default" or a CIDR
  std::string dev;
  unsigned table = 254;  // number of the routing table; 254 is RT_TABLE_MAIN

  // Returns true for a default route of the main table.
  bool is_default() const;
  friend bool operator==(const Route&, const Route&) = default;
};

struct Limits {
  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  std::optional<std::uint64_t> memlock_soft;  // bytes
  std::optional<std::uint64_t> memlock_hard;
  std::optional<std::uint64_t> cap_eff;  // mask of the effective capabilities (capabilities(7))
  std::optional<unsigned> uid;
  std::optional<bool> initial_userns;  // false: in a user namespace; capabilities count only inside it
  friend bool operator==(const Limits&, const Limits&) = default;
};

// A class directory below /sys/class: infiniband, infiniband_verbs or infiniband_mad.
struct ClassDirectory {
  std::string name;
  // Text of the file `abi_version`, which only classes with device nodes have. libibverbs finds no device without the
  // file of infiniband_verbs.
  std::optional<std::string> abi_version = {};
  friend bool operator==(const ClassDirectory&, const ClassDirectory&) = default;
};

// A failed read of a file that may exist, recorded by read_node() and read_hcas_elsewhere(). Errors that prove that the
// file does not exist are not recorded (note_unread()).
struct Unread {
  enum class Part : std::uint8_t {
    kHcas,    // the list of HCAs, the HCAs of their VFs and PFs, and the uverbs nodes
    kNodes,   // the umad and issm nodes, and the device numbers of all nodes
    kRdmaCm,  // existence and number of /dev/infiniband/rdma_cm
    kView,    // links and files that a view copies
    kPool,    // properties by which pools select: PCI vendor and device, driver, link layer, netdevs
    kDetail,  // facts for reports, and for the order of preference; they do not change which HCAs are allowed
  };
  Part part = Part::kDetail;
  std::string path;
  int code = 0;          // errno
  std::string hca = {};  // empty: the failure concerns all HCAs of the node
  friend bool operator==(const Unread&, const Unread&) = default;
};

enum class NetnsMode { kShared, kExclusive };

struct Inventory {
  std::optional<std::string> about;  // JSON text, copied without interpretation
  std::optional<bool> rdma_cm;
  std::optional<std::string> rdma_cm_dev;         // "MAJ:MIN"; only read_node() sets it
  std::vector<ClassDirectory> class_directories;  // empty unless read_node() read the inventory
  std::vector<Unread> unread;  // empty unless read_node() or read_hcas_elsewhere() read the inventory
  std::vector<Hca> hcas;
  // HCAs of the node that it does not show, because they are in the network namespace of a container: name, PCI
  // address, physical function and GUID, as far as they are known. They keep the numbers of the other HCAs and rails as
  // they are. Empty unless the caller fills it (hook::note_away_hcas()).
  std::vector<Hca> away;
  std::vector<Netdev> netdevs;
  std::optional<std::vector<Gpu>> gpus;
  std::optional<std::vector<Route>> routes;
  std::optional<NetnsMode> netns_mode;
  std::optional<Limits> limits;
  std::optional<std::map<std::string, std::string>> conf;  // NCCL's and RCCL's files: path to text
  std::optional<std::map<std::string, std::string>> env;   // environment variables that are already set

  // Set if hcas is empty because /sys/class/infiniband cannot be opened: the errno of the failure. ENOENT: no RDMA
  // driver is loaded. ENODEV: no sysfs is mounted.
  std::optional<int> rdma_error;
  // Set if netdevs and routes are empty because the netlink request failed.
  std::optional<std::string> net_error;

  friend bool operator==(const Inventory&, const Inventory&) = default;
};

// The link layers of a set of ports. NCCL cannot mix link layers, so a training program uses the ports of one link
// layer.
struct LinkLayers {
  // True if the set has both InfiniBand ports and Ethernet ports.
  bool mixed = false;
  // The total rates in Gb/s of the ports with the highest rate, because slower ports are not used.
  double infiniband = 0;
  double ethernet = 0;
  // Returns true if a training program uses this port of the set: the set is not `mixed`, or the port has the link
  // layer with the higher total rate. InfiniBand wins a tie.
  bool takes(const Port& port) const { return !mixed || port.is_infiniband() == (infiniband >= ethernet); }
};
// Sums the rates of the fastest ports by link layer. ports: only ports without an obstacle.
LinkLayers link_layers_of(const std::vector<const Port*>& ports);

// Returns N for "uverbsN" or "/dev/infiniband/uverbsN" with at most nine digits, otherwise nullopt.
std::optional<unsigned> uverbs_number(std::string_view path_or_name);

// The first 32 uverbs nodes have fixed device numbers; further nodes get a dynamic major.
// Source: include/rdma/ib_verbs.h, drivers/infiniband/core/uverbs_main.c, Linux 6.1.
inline constexpr std::uint32_t kUverbsMajor = 231;
inline constexpr std::uint32_t kUverbsFirstMinor = 192;
inline constexpr unsigned kUverbsFixed = 32;
// Returns N of the uverbsN node with this fixed device number, otherwise nullopt.
std::optional<unsigned> uverbs_of_number(std::int64_t major, std::int64_t minor);

// Returns the netdev with that name in this network namespace, nullptr if there is none.
const Netdev* find_netdev(const Inventory& inventory, std::string_view name);
// Returns the HCA with that verbs name, nullptr if there is none.
const Hca* find_hca(const Inventory& inventory, std::string_view name);
Hca* find_hca(Inventory& inventory, std::string_view name);
// Returns the netdev of the first default route in the main table, IPv4 before IPv6. Returns nullptr if the inventory
// does not have such a route, or does not have its netdev.
const Netdev* default_route_netdev(const Inventory& inventory);

// Returns the device in the target of a class directory link: "0000:0c:00.0" for
// "../../devices/pci0000:00/0000:0c:00.0/infiniband/mlx5_0", kNoDevice for a software HCA. Returns an empty text if the
// link has too few components.
std::string_view device_in_link(std::string_view link);
inline constexpr std::string_view kNoDevice = "virtual";
// Returns the directory of the device, below /sys/devices, in the link of a netdev, an HCA or a uverbs node in its
// class directory. class_name: "net", "infiniband" or "infiniband_verbs". "pci0000:00/0000:0c:00.0" for
// "../../devices/pci0000:00/0000:0c:00.0/infiniband/mlx5_0", and for the absolute link that enroot's hook for Mellanox
// makes. Returns an empty text without such a directory: for a software device, and for a link of another form.
std::string_view device_directory(std::string_view link, std::string_view class_name);

}  // namespace fabric
