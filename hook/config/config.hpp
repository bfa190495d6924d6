// The administrator's configuration: the HCAs for containers, the modes, and the containers that may request HCAs.
// Files in the order in which they are read: /etc/rdma-init/cluster/config.json, which a cluster writes; the node's own
// /etc/rdma-init/config.json; /etc/rdma-init/conf.d/*.json by name. Schema: config/config.schema.json. `rdma-hook
// check-config` prints problems with line and remedy.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "base/words.hpp"
#include "fabric/address.hpp"
#include "fabric/selectors.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

// Prefixes of the annotations that this project reads and writes; the possible values of "trusted_annotations" in
// config.json.
inline constexpr const char* kOwnAnnotations = "rdma-init.io";
inline constexpr const char* kVolcengineAnnotations = "k8s.volcengine.com";
inline constexpr const char* kSpiderpoolAnnotations = "cni.spidernet.io";
// The annotation with the token of a grant that is made before the container exists. At createRuntime the hook finds
// the grant by this token.
inline constexpr const char* kGrantAnnotation = "rdma-init.io/grant";

inline constexpr const char* kConfigPath = "/etc/rdma-init/config.json";
inline constexpr const char* kConfigDropIns = "/etc/rdma-init/conf.d";
inline constexpr const char* kClusterConfigPath = "/etc/rdma-init/cluster/config.json";
inline constexpr const char* kIpamDirectory = "/opt/cni/bin";

// How a container uses an HCA.
enum class Mode {
  // one owner; with a network, the netdev moves into the container, and the RDMA device too if the RDMA subsystem is in
  // exclusive mode
  kExclusive,
  kShared,  // an HCA has as many owners as the limit allows; with a network, a container has one child netdev per HCA
  kSharedMulti,  // as kShared, but a container can have several child netdevs per HCA
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

// Limits of RDMA objects and open contexts per container and HCA, as the cgroup controller `rdma` counts them
// (Documentation/admin-guide/cgroup-v2.rst, "RDMA"). nullopt: there is no limit.
struct RdmaLimits {
  std::optional<std::uint32_t> handles;  // open contexts: one for each ibv_open_device()
  std::optional<std::uint32_t> objects;  // sum of PDs, MRs, QPs, CQs and all other objects
  friend bool operator==(const RdmaLimits&, const RdmaLimits&) = default;
};
inline bool is_limited(const RdmaLimits& limits) {
  return limits.handles || limits.objects;
}

// The addresses for rails from `from` to `to`, both included, all in subnet/prefix.
struct AddressRange {
  std::optional<unsigned> rail;  // nullopt: all rails share the range
  fabric::Address subnet;
  unsigned prefix = 24;  // bits, of 32 or 128
  fabric::Address from;  // first address for rails; default: the first of the subnet that is not the gateway
  fabric::Address to;
  std::optional<fabric::Address> gateway;
  // If one configuration serves all nodes: the prefix length of one node's part of the subnet, such as 24 in a subnet
  // with prefix 16. `from` and `to` then span the whole subnet until slice_of() (node_slice.hpp) narrows the range.
  // nullopt: the whole range belongs to this node.
  std::optional<unsigned> per_node = {};
  std::vector<fabric::Address> own = {};  // addresses of the node, never allocated
  bool is_for(unsigned which) const { return !rail || *rail == which; }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

using MacAddress = std::array<std::uint8_t, 6>;
// Parses "02:00:00:00:00:01". Returns nullopt if it is not six hex bytes.
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_string(const MacAddress& mac);
// Parses "00:11:22:33:44:55:66:77", the form of `ip link set vf` for an InfiniBand GUID, into host byte order. Returns
// nullopt if it is not eight hex bytes.
std::optional<std::uint64_t> parse_guid(std::string_view text);

// "macs" and "guids": the values from `from` to `to`, both included. Each VF gets a different value. A MAC address is
// in the low 48 bits.
struct VfRange {
  enum class Kind { kMac, kGuid };
  Kind kind = Kind::kMac;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  // Number of values of one node: node 0 has the first ones. nullopt: all values belong to this node.
  std::optional<unsigned> per_node = {};
  friend bool operator==(const VfRange&, const VfRange&) = default;
};
// Returns "02:00:00:00:00:01" or "00:11:22:33:44:55:66:77".
std::string to_string(VfRange::Kind kind, std::uint64_t value);
std::string to_string(const VfRange& range);  // "FROM-TO"
std::uint64_t to_number(const MacAddress& mac);
MacAddress to_mac(std::uint64_t value);

// Attributes of an SR-IOV virtual function, set through its physical function (IFLA_VF_*, Linux 6.12
// include/uapi/linux/if_link.h). nullopt: unchanged.
struct VfAttributes {
  std::optional<MacAddress> mac;
  std::optional<unsigned> vlan;  // VLAN id; 0: no VLAN
  std::optional<unsigned> qos;
  std::optional<std::uint16_t> vlan_protocol;  // 0x8100, 0x88a8; host byte order
  std::optional<bool> trust;
  std::optional<bool> spoofchk;
  std::optional<unsigned> link_state;   // value of IFLA_VF_LINK_STATE: _AUTO, _ENABLE or _DISABLE
  std::optional<unsigned> min_tx_rate;  // Mb/s; 0: there is no minimum
  std::optional<unsigned> max_tx_rate;
  std::optional<std::uint64_t> node_guid;  // InfiniBand; host byte order
  std::optional<std::uint64_t> port_guid;
  bool empty() const { return *this == VfAttributes{}; }
  friend bool operator==(const VfAttributes&, const VfAttributes&) = default;
};

// "env": variables of communication libraries, which rdma-init sets if the container has no value for them
// (fabric::is_policy_variable(), fabric::is_site_value()).
using SiteValues = std::map<std::string, std::string>;

// Selects the HCAs of a pool, with the keys of k8s-rdma-shared-dev-plugin, and "pciAddresses" of
// sriov-network-device-plugin. An HCA must match each list; it matches a list if it has one of the list's values, or if
// the list is empty.
struct PoolSelectors {
  std::vector<std::string> vendors;             // "15b3", as pci_id() writes it
  std::vector<std::string> device_ids;          // "1021"
  std::vector<std::string> drivers;             // "mlx5_core"
  std::vector<std::string> if_names;            // the HCA's netdevs; globs
  std::vector<std::string> link_types;          // "ether", "infiniband"
  std::vector<std::string> pci_addresses = {};  // "0000:0c:00.0"; globs
  friend bool operator==(const PoolSelectors&, const PoolSelectors&) = default;
};

struct Pool {
  std::string name;
  PoolSelectors selectors;
  std::vector<Mode> modes;                   // allowed modes; the first is the default
  std::map<Mode, unsigned> limits;           // maximal number of owners per HCA; a missing mode has no limit
  std::optional<std::string> network;        // network of the pool's HCAs; a container can request another
  std::optional<std::string> resource = {};  // resource name in Kubernetes: "rdma-init.io/rails"
  RdmaLimits rdma_limits = {};               // per container, in all modes except exclusive
  bool lend_providers = false;               // containers get the node's libraries for these HCAs
  SiteValues env = {};  // values for the pool's HCAs; the values of a container's network have precedence
  // Number of HCAs that the pool has on a node without fault; nullopt: not stated.
  std::optional<unsigned> expect = {};
  // Returns whether the pool has a resource but no selectors. rdma-device-plugin then offers Kubernetes only HCAs of
  // one rate and link layer, see other_kinds_of().
  bool counts_one_kind() const { return resource && selectors == PoolSelectors(); }
  friend bool operator==(const Pool&, const Pool&) = default;
};

// Modes of a test that rdma-hook runs on a rail before the container starts. kWarn: a failed test gives a warning.
// kFail: a failed test refuses the start.
enum class RailTest { kOff, kWarn, kFail };

// How the netdevs of granted HCAs are set up in a container.
struct Network {
  std::string name;
  std::optional<Mode> mode;         // default mode of the network
  std::string child = "macvlan";    // "macvlan", "ipvlan" or "ipoib", for shared and shared-multi
  std::optional<std::string> pool;  // the only pool whose HCAs may be used with the network

  bool macvlan_private = false;            // "macvlan_mode": "private"; else bridge
  std::optional<std::uint16_t> pkey = {};  // partition of ipoib children; the kernel adds 0x8000 (full member)
  std::optional<unsigned> mtu = {};        // bytes; nullopt: the MTU of the node's netdev
  VfAttributes vf = {};                    // attributes of VFs in mode exclusive
  std::optional<VfRange> vf_macs = {};     // MAC addresses for VFs in mode exclusive
  std::optional<VfRange> vf_guids = {};    // GUIDs for these VFs, as node and port GUID
  std::vector<AddressRange> ranges = {};   // "addresses": allocated by rdma-hook; ranges do not overlap
  std::optional<std::string> ipam = {};    // "ipam": the JSON text of a CNI plugin's "ipam" object, "type" included
  std::string ipam_plugin = {};            // file name of that plugin; empty without ipam
  std::string ipam_dir = kIpamDirectory;   // directory of this plugin; plugins of recorded leases are searched here too
  // "routing": number of the first routing table. Each rail of a container has its own table and the rule `from ADDRESS
  // lookup TABLE`. nullopt: all rails use the main table.
  std::optional<unsigned> first_table = 100;
  unsigned rule_priority = 32000;
  RailTest gateway_test = RailTest::kWarn;
  RailTest duplicate_test =
      RailTest::kOff;  // off by default: if no host replies, the test delays each start by its full time
  unsigned test_retries = 3;
  unsigned test_interval_ms = 100;
  bool align_gids = true;
  unsigned gid_wait_ms = 2000;     // limit of the wait for the rails' GIDs
  bool take_node_netdevs = false;  // mode exclusive: also move the netdev of the default route, kubelet or sshd
  SiteValues env = {};
  friend bool operator==(const Network&, const Network&) = default;
};

// Returns the attributes that the network sets on VFs. An attribute whose value comes from a range is 0, because the
// value is not known yet.
VfAttributes set_attributes(const Network& network);

struct NodeOptions {
  bool rdma_cm = true;
  bool umad = false;  // containers can send management datagrams
  bool issm = false;  // containers can act as a subnet manager
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;  // owner of the device nodes in the container
  std::uint32_t gid = 0;
  friend bool operator==(const NodeOptions&, const NodeOptions&) = default;
};

// "runtime": options of rdma-runtime.
struct RuntimeOptions {
  std::vector<std::string> runtimes = {
      "runc", "crun"};                // names or absolute paths of runtimes; the first existing runtime is used
  std::string hook = {};              // absolute path of rdma-hook; empty: the installed rdma-hook
  std::optional<Engine> engine = {};  // the calling engine; nullopt: detected by its --root option
  bool allow_system_calls = false;    // add system calls that RDMA needs to the seccomp profile
  friend bool operator==(const RuntimeOptions&, const RuntimeOptions&) = default;
};

// "nri": options of rdma-nri.
struct NriOptions {
  bool evict_ungranted = false;  // evict containers that requested HCAs and started while rdma-nri was not connected
  friend bool operator==(const NriOptions&, const NriOptions&) = default;
};

// "device_plugin": options of rdma-device-plugin.
struct DevicePluginOptions {
  bool cdi = false;           // return CDI devices instead of device nodes
  unsigned poll_seconds = 5;  // seconds between checks for changes of which the kernel sends no event
  friend bool operator==(const DevicePluginOptions&, const DevicePluginOptions&) = default;
};

// "node_index": where the node's number comes from. The number selects the node's slice of ranges with "per_node".
struct NodeIndex {
  enum class By {
    kNumber,   // 7
    kFile,     // "/etc/rdma-init/node_index", a file with the number
    kAddress,  // "address": in each range, the slice that contains an address of the node
    kName,     // "NODE_NAME": the number at the end of this environment variable
    kNames,    // {"gpu-a": 0, "ip-10-0-3-#": 256}: the entry for NODE_NAME
  };
  By by = By::kNumber;
  std::uint64_t number = 0;
  std::string file = {};
  // kNames: numbers of names and patterns. A pattern's number is added to the number that it stands for:
  // node_index.hpp.
  std::map<std::string, std::uint64_t> names = {};
  bool is_by_name() const { return by == By::kName || by == By::kNames; }
  friend bool operator==(const NodeIndex&, const NodeIndex&) = default;
};

// An entry of "rails": the HCAs of a rail or, in a nested list, of a plane of a rail.
struct RailEntry {
  std::string text;                    // the entry as written
  fabric::Selector selector;           // kName, kPci, kGuid or kPf
  unsigned rail = 0;                   // index in "rails"
  std::optional<unsigned> plane = {};  // index in the nested list; nullopt: the rail has no planes
  friend bool operator==(const RailEntry&, const RailEntry&) = default;
};

// Returns whether an entry is of that kind.
bool has_entry(const std::vector<RailEntry>& rails, fabric::Selector::Kind kind);
// Returns whether the list has names of HCAs only, without nested lists, globs and prefixes.
bool is_of_names(const std::vector<RailEntry>& rails);
// Returns whether a rail has planes.
bool has_planes(const std::vector<RailEntry>& rails);

struct Config {
  std::vector<Pool> pools;  // empty: all HCAs are one pool with all modes and no limits
  std::map<std::string, Network> networks;
  std::optional<NodeIndex> node_index;  // required by ranges with "per_node"
  std::vector<RailEntry> rails;         // entries in rail order; HCAs that no entry selects follow in PCI order
  NodeOptions nodes;
  RuntimeOptions runtime;
  NriOptions nri;
  DevicePluginOptions device_plugin;
  // RLIMIT_MEMLOCK of containers in bytes; UINT64_MAX: unlimited; nullopt ("memlock": null): the container's own limit.
  std::optional<std::uint64_t> memlock = UINT64_MAX;
  bool ipc_lock = true;    // add CAP_IPC_LOCK, if the way (hook, rdma-runtime, ...) can
  bool sysfs_view = true;  // /sys/class/infiniband* shows only the granted HCAs
  std::string netdev_names = "net%d";
  std::string topology_file = {};  // absolute; NCCL's description of the node for containers; empty: none
  // File names of the CNI plugins that the cluster's file may name in "ipam". Only the node's own files can set it.
  std::vector<std::string> ipam_allowed = {};
  std::string lend_from = {};  // absolute; directory of libraries that pools lend; empty: the node's own directories
  std::vector<std::string> annotations_may_request;  // globs of Kubernetes namespaces; "*" for all
  bool env_may_request = false;
  // Only annotations with these prefixes are read.
  std::vector<std::string> trusted_annotations = {kOwnAnnotations, kVolcengineAnnotations, kSpiderpoolAnnotations};
  std::optional<std::string> default_devices;  // request of a container that makes none: "all", a count or selectors
  // Kubernetes namespaces in which the cni.spidernet.io annotations are read, and in which they are ignored. The keys
  // have the names of Spiderpool's podResourceInject: namespacesInclude, namespacesExclude.
  std::vector<std::string> namespaces_include;
  std::vector<std::string> namespaces_exclude;
  friend bool operator==(const Config&, const Config&) = default;
};

// Returns the mode of a container that requests no mode.
// network: the container's network; nullptr: it has none. The pool must have modes.
Mode default_mode(const Pool& pool, const Network* network);
// Returns whether any pool has RDMA limits.
bool limits_rdma(const Config& config);
// Returns whether several containers can use an HCA of the pool at the same time. The pool must have modes.
bool is_shared(const Pool& pool);
// Returns whether any network uses a CNI IPAM plugin.
bool runs_ipam_plugins(const Config& config);

// An error or warning about a configuration.
struct ConfigProblem {
  std::string file;
  unsigned line = 0;  // line in the file; 0: the whole file
  std::string message;
  std::string remedy;
  bool is_error = true;  // false: a warning, e.g. that umad is on
};

struct ConfigText {
  std::string file;  // name of the file for messages
  std::string text;
  bool is_clusters = false;  // the cluster's file, in which the keys of refuse_node_keys() are errors
  friend bool operator==(const ConfigText&, const ConfigText&) = default;
};

// Returns the first problem that is an error, nullptr if there is none.
const ConfigProblem* first_error(const std::vector<ConfigProblem>& problems);
// Returns "FILE:LINE: error: MESSAGE; remedy: REMEDY".
std::string to_string(const ConfigProblem& problem);
// Returns [{"file", "line" (null: the whole file), "severity": "error" or "warning", "message", "remedy"}]
Json problems_json(const std::vector<ConfigProblem>& problems);

struct ConfigPaths {
  std::string file = kConfigPath;
  std::string drop_ins = kConfigDropIns;  // directory of *.json files; empty: none is read
  bool file_must_exist = false;           // true with --config: the cluster's file is then not read
  std::string cluster = kClusterConfigPath;
};
// Returns the default paths of the files, below a root.
ConfigPaths config_paths_below(const std::string& root);

}  // namespace hook
