// The administrator's configuration: which HCAs exist for containers, how they may be held, who may ask.
// /etc/rdma-init/cluster/config.json, which a cluster writes, then the node's own files: /etc/rdma-init/config.json and
// /etc/rdma-init/conf.d/*.json in the order of their names. The schema is config/config.schema.json;
// `rdma-hook check-config` prints what is wrong, with line and remedy.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "hook/base/result.hpp"
#include "hook/base/words.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

// The annotations that this project reads and writes. config.json's "trusted_annotations" names them by prefix.
inline constexpr const char* kOwnAnnotations = "rdma-init.io";
inline constexpr const char* kVolcengineAnnotations = "k8s.volcengine.com";
inline constexpr const char* kSpiderpoolAnnotations = "cni.spidernet.io";
// Written beside a grant that is made before the container: its token, by which createRuntime finds the grant.
inline constexpr const char* kGrantAnnotation = "rdma-init.io/grant";

inline constexpr const char* kConfigPath = "/etc/rdma-init/config.json";
inline constexpr const char* kConfigDropIns = "/etc/rdma-init/conf.d";
inline constexpr const char* kClusterConfigPath = "/etc/rdma-init/cluster/config.json";
inline constexpr const char* kIpamDirectory = "/opt/cni/bin";

// How a container holds an HCA.
enum class Mode {
  kExclusive,    // one holder; with a network, the netdev (and where the kernel isolates them, the RDMA device) moves
  kShared,       // any number of holders, or as many as config.json allows; with a network, one child netdev per HCA
  kSharedMulti,  // as shared, with several child netdevs per HCA and container
  kHca,          // device nodes only, never a netdev
};

inline constexpr Word<Mode> kModeWords[] = {{"exclusive", Mode::kExclusive},
                                            {"shared", Mode::kShared},
                                            {"shared-multi", Mode::kSharedMulti},
                                            {"hca", Mode::kHca},
                                            {"host", Mode::kHca}};

inline std::optional<Mode> parse_mode(std::string_view text) {
  return from_word(kModeWords, text);
}
inline std::string_view to_string(Mode mode) {
  return to_word(kModeWords, mode);
}

// Most objects and open contexts that one container may have of one HCA, as the kernel's controller `rdma` counts them
// (Documentation/admin-guide/cgroup-v2.rst, "RDMA"). nullopt: no limit.
struct RdmaLimits {
  std::optional<std::uint32_t> handles;  // contexts: one for each ibv_open_device()
  std::optional<std::uint32_t> objects;  // PDs, MRs, QPs, CQs and all others, added up
  friend bool operator==(const RdmaLimits&, const RdmaLimits&) = default;
};
inline bool is_limited(const RdmaLimits& limits) {
  return limits.handles || limits.objects;
}

// One range of a rail: addresses from..to of one family, both included, within subnet/prefix.
struct AddressRange {
  std::optional<unsigned> rail;  // nullopt: of every rail; they then share the range, no address is given twice
  fabric::Address subnet;
  unsigned prefix = 24;  // bits of its own family
  fabric::Address from;  // the first that may be given; default: the first of the subnet that is not the gateway
  fabric::Address to;
  std::optional<fabric::Address> gateway;
  // Prefix of the part that one node gives addresses of, in bits of its own family; `from` and `to` are then the whole
  // subnet's until slice_of() (node_slice.hpp) makes them the node's. nullopt: all of it is this node's.
  std::optional<unsigned> per_node = {};
  std::vector<fabric::Address> own = {};  // the node's own, never given
  bool is_for(unsigned which) const { return !rail || *rail == which; }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

using MacAddress = std::array<std::uint8_t, 6>;
// "02:00:00:00:00:01"; nullopt: six hex bytes are not there.
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_string(const MacAddress& mac);
// "00:11:22:33:44:55:66:77", as `ip link set vf` takes an InfiniBand GUID; host byte order. nullopt: eight hex bytes
// are not there.
std::optional<std::uint64_t> parse_guid(std::string_view text);

// "macs" and "guids": values from..to, both included, of which each function gets its own. As numbers: a MAC address in
// the low 48 bits.
struct VfRange {
  enum class Kind { kMac, kGuid };
  Kind kind = Kind::kMac;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  // So many from `from` on are node 0's, the next node 1's; nullopt: all this node's.
  std::optional<unsigned> per_node = {};
  friend bool operator==(const VfRange&, const VfRange&) = default;
};
// "02:00:00:00:00:01", "00:11:22:33:44:55:66:77".
std::string to_string(VfRange::Kind kind, std::uint64_t value);
std::string to_string(const VfRange& range);  // "FROM-TO"
std::uint64_t to_number(const MacAddress& mac);
MacAddress to_mac(std::uint64_t value);

// Attributes of an SR-IOV virtual function, set through its physical function (IFLA_VF_*, Linux 6.12
// include/uapi/linux/if_link.h). nullopt: left as it is.
struct VfAttributes {
  std::optional<MacAddress> mac;
  std::optional<unsigned> vlan;  // 0: none
  std::optional<unsigned> qos;
  std::optional<std::uint16_t> vlan_protocol;  // 0x8100, 0x88a8; host byte order
  std::optional<bool> trust;
  std::optional<bool> spoofchk;
  std::optional<unsigned> link_state;   // IFLA_VF_LINK_STATE_AUTO, _ENABLE, _DISABLE
  std::optional<unsigned> min_tx_rate;  // Mb/s; 0: none
  std::optional<unsigned> max_tx_rate;
  std::optional<std::uint64_t> node_guid;  // InfiniBand; host byte order
  std::optional<std::uint64_t> port_guid;
  bool empty() const { return *this == VfAttributes{}; }
  friend bool operator==(const VfAttributes&, const VfAttributes&) = default;
};

// Which HCAs belong to a pool, in the words of k8s-rdma-shared-dev-plugin. A list that is empty takes all; the lists
// are ANDed, the values within one ORed.
struct PoolSelectors {
  std::vector<std::string> vendors;     // "15b3", as pci_id() writes it
  std::vector<std::string> device_ids;  // "1021"
  std::vector<std::string> drivers;     // "mlx5_core"
  std::vector<std::string> if_names;    // the HCA's netdevs; globs
  std::vector<std::string> link_types;  // "ether", "infiniband"
  friend bool operator==(const PoolSelectors&, const PoolSelectors&) = default;
};

struct Pool {
  std::string name;
  PoolSelectors selectors;
  std::vector<Mode> modes;                   // what may be asked for; the first is the default
  std::map<Mode, unsigned> limits;           // most holders of one HCA, by mode; missing: no limit
  std::optional<std::string> network;        // which network its HCAs get unless the container names another
  std::optional<std::string> resource = {};  // as which Kubernetes counts its HCAs: "rdma-init.io/rails"
  RdmaLimits rdma_limits = {};               // of each container, in every mode but exclusive
  // Kubernetes counts its HCAs, and nothing says which: those of one rate and link layer, see other_kinds_of().
  bool counts_one_kind() const { return resource && selectors == PoolSelectors(); }
  friend bool operator==(const Pool&, const Pool&) = default;
};

// A test of a rail before the container starts: not made, a warning, or the start fails.
enum class RailTest { kOff, kWarn, kFail };

// What the netdevs of granted HCAs become inside the container.
struct Network {
  std::string name;
  std::optional<Mode> mode;         // when the container names none
  std::string child = "macvlan";    // "macvlan", "ipvlan", "ipoib": for shared and shared-multi
  std::optional<std::string> pool;  // its HCAs come from this pool only

  bool macvlan_private = false;            // "macvlan_mode": "private"; else bridge
  std::optional<std::uint16_t> pkey = {};  // of ipoib children; the kernel sets the bit of full members, 0x8000
  std::optional<unsigned> mtu = {};        // bytes; nullopt: the node's netdev's
  VfAttributes vf = {};                    // for exclusive VFs
  std::optional<VfRange> vf_macs = {};     // of which each of them gets its MAC address
  std::optional<VfRange> vf_guids = {};    // and its GUID, of node and port
  std::vector<AddressRange> ranges = {};   // "addresses": addresses of our own; none overlap
  std::optional<std::string> ipam = {};    // "ipam": the JSON text of a CNI plugin's "ipam" object, "type" included
  std::string ipam_plugin = {};            // file name of that plugin; empty without ipam
  std::string ipam_dir = kIpamDirectory;   // where it is, and where plugins of leases on record are looked for
  // "routing": each rail of a container has its own table, this number for the first, and the rule `from ADDRESS lookup
  // TABLE`; null: the main table as it comes.
  std::optional<unsigned> first_table = 100;
  unsigned rule_priority = 32000;
  RailTest gateway_test = RailTest::kWarn;
  RailTest duplicate_test = RailTest::kOff;  // silence is the good answer: it always takes its whole time
  unsigned test_retries = 3;
  unsigned test_interval_ms = 100;
  bool align_gids = true;
  unsigned gid_wait_ms = 2000;     // until the kernel has made the rails' GIDs
  bool take_node_netdevs = false;  // exclusive: also a netdev with the default route, or kubelet's or sshd's address
  friend bool operator==(const Network&, const Network&) = default;
};

// The attributes that its functions get: of those that come from a range a 0 stands for what is not known yet.
VfAttributes set_attributes(const Network& network);

struct NodeOptions {
  bool rdma_cm = true;
  bool umad = false;  // lets a container send management datagrams
  bool issm = false;  // lets a container be a subnet manager
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;  // in the container
  std::uint32_t gid = 0;
  friend bool operator==(const NodeOptions&, const NodeOptions&) = default;
};

// "runtime": of rdma-runtime.
struct RuntimeOptions {
  std::vector<std::string> runtimes = {"runc", "crun"};  // names or absolute paths; the first that is there
  std::string hook = {};                                 // absolute path of rdma-hook; empty: where it is installed
  std::optional<Engine> engine = {};                     // that calls; nullopt: told by its --root
  bool allow_system_calls = false;                       // widen a seccomp profile that refuses what RDMA needs
  friend bool operator==(const RuntimeOptions&, const RuntimeOptions&) = default;
};

// "nri": of rdma-nri.
struct NriOptions {
  bool evict_ungranted = false;  // containers that were created while it was not connected, asked and got nothing
  friend bool operator==(const NriOptions&, const NriOptions&) = default;
};

// "device_plugin": of rdma-device-plugin.
struct DevicePluginOptions {
  bool cdi = false;           // names CDI devices instead of device nodes
  unsigned poll_seconds = 5;  // what the kernel sends no event of is looked at so often
  friend bool operator==(const DevicePluginOptions&, const DevicePluginOptions&) = default;
};

// "node_index": how a node knows its number.
struct NodeIndex {
  enum class By {
    kNumber,   // 7
    kFile,     // "/etc/rdma-init/node_index", which has it
    kAddress,  // "address": the slice that has the node's own address on that rail
    kName,     // "NODE_NAME": the number at the end of that variable
  };
  By by = By::kNumber;
  std::uint64_t number = 0;
  std::string file = {};
  friend bool operator==(const NodeIndex&, const NodeIndex&) = default;
};

struct Config {
  std::vector<Pool> pools;  // empty: one pool of all HCAs, all modes, no limits
  std::map<std::string, Network> networks;
  std::optional<NodeIndex> node_index;  // for ranges with "per_node"; config.json has it where there are such
  std::vector<std::string> rails;       // HCA names in rail order; the others follow in PCI order
  NodeOptions nodes;
  RuntimeOptions runtime;
  NriOptions nri;
  DevicePluginOptions device_plugin;
  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: left alone ("memlock": null).
  std::optional<std::uint64_t> memlock = UINT64_MAX;
  bool ipc_lock = true;    // CAP_IPC_LOCK where a way can add it
  bool sysfs_view = true;  // /sys/class/infiniband* show the granted HCAs only
  std::string netdev_names = "net%d";
  std::vector<std::string> annotations_may_request;  // globs of Kubernetes namespaces; "*" for all
  bool env_may_request = false;
  // Annotations that are read at all, by prefix; all three when config.json does not say.
  std::vector<std::string> trusted_annotations = {kOwnAnnotations, kVolcengineAnnotations, kSpiderpoolAnnotations};
  std::optional<std::string> default_devices;  // what a container that says nothing gets: "all", a count, selectors
  // Namespaces for the cni.spidernet.io annotations, in the words of Spiderpool's podResourceInject.
  std::vector<std::string> namespaces_include;
  std::vector<std::string> namespaces_exclude;
  friend bool operator==(const Config&, const Config&) = default;
};

// Of a container that names none, on this network; nullptr: on none. The pool has modes.
Mode default_mode(const Pool& pool, const Network* network);
// Whether some pool limits what containers allocate.
bool limits_rdma(const Config& config);
// Whether several containers may hold an HCA of the pool at a time. The pool has modes.
bool is_shared(const Pool& pool);
// Whether addresses come from programs, CNI's IPAM plugins.
bool runs_ipam_plugins(const Config& config);

// One thing that is wrong, or odd, in a configuration.
struct ConfigProblem {
  std::string file;
  unsigned line = 0;  // 0: the file as a whole
  std::string message;
  std::string remedy;
  bool is_error = true;  // false: a warning, e.g. that umad is on
};

struct ConfigText {
  std::string file;  // as named in messages
  std::string text;
  bool is_clusters = false;  // keys of the node's own files are errors in it (refuse_node_keys())
  friend bool operator==(const ConfigText&, const ConfigText&) = default;
};

// "FILE:LINE: error: MESSAGE; REMEDY".
std::string to_string(const ConfigProblem& problem);

struct ConfigPaths {
  std::string file = kConfigPath;
  std::string drop_ins = kConfigDropIns;  // empty: none
  bool file_must_exist = false;           // --config names one, which stands in place of the cluster's file too
  std::string cluster = kClusterConfigPath;
};
// The node's files below a root.
ConfigPaths config_paths_below(const std::string& root);

}  // namespace hook
