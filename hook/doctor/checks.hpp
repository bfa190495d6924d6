// What `rdma-hook doctor` looks at, and what it says of it. The facts are values: read_...() reads them from the node,
// check_...() is pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/install/ask_engine.hpp"
#include "hook/install/record.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

enum class Grade { kNote, kWarning, kBroken };

struct Finding {
  Grade grade = Grade::kWarning;
  std::string object;  // "mlx5_3:1", "/dev/infiniband/uverbs0"
  std::string message;
  std::string remedy;
};

struct Check {
  std::string name;
  std::string summary;  // what was looked at, for who finds nothing wrong
  std::vector<Finding> findings;
  bool looked = true;  // false: the summary says why not
  void add(Grade grade, std::string object, std::string message, std::string remedy) {
    findings.push_back({grade, std::move(object), std::move(message), std::move(remedy)});
  }
};

// What of the kernel and of udev RDMA needs: modules, device nodes.

struct SeenNode {
  bool is_device = false;  // a character device
  std::string number;      // "231:192"
  unsigned mode = 0;       // permissions
};

struct ExpectedNode {
  std::string path;    // "/dev/infiniband/uverbs0"
  std::string number;  // as the kernel has it; empty: not known
  fabric::Attr<SeenNode> seen;
};

// A PCI function without an HCA whose driver has another half for RDMA.
struct HalfDriven {
  std::string pci;
  std::string driver;           // "mlx5_core"; empty: it has none
  std::string module;           // "mlx5_ib"
  fabric::Attr<bool> loaded{};  // that module
};

struct KernelFacts {
  fabric::Attr<bool> uverbs{};   // ib_uverbs is there
  fabric::Attr<bool> rdma_cm{};  // rdma_ucm is there
  std::vector<HalfDriven> half_driven;
  std::vector<ExpectedNode> nodes;
  std::optional<bool> privileged_qkey;  // nullopt: the kernel does not say, or this is no live node
};

// Whether a path is there. Unreadable: it cannot be told.
fabric::Attr<bool> is_path_there(const std::string& path);

// root: in front of /sys and /dev.
KernelFacts read_kernel_facts(const std::string& root, const fabric::Inventory& inventory);

// Pure: "modules", "nodes", "qkey".
std::vector<Check> check_kernel(const KernelFacts& facts, const fabric::Inventory& inventory, const Config& config);

// The HCAs of the pools: GID tables, ports, rates, MTUs, and the node's own network on them. Pure.

// active_mtu in bytes of an HCA's port, which no file tells.
using ActiveMtus = std::map<std::pair<std::string, unsigned>, unsigned>;
// What `ibv_devinfo` of rdma-core prints. What is none of that is left out.
ActiveMtus parse_ibv_devinfo(std::string_view text);

// What the kernel makes of a netdev's MTU (include/rdma/ib_addr.h, iboe_get_mtu(), Linux 6.12); 0: too small for RoCE.
unsigned roce_mtu(int netdev_mtu);

// "netns", "pools", "gids", "ports", "rates", "mtu", "routes", "addresses".
std::vector<Check> check_rails(const fabric::Inventory& inventory, const Config& config, const ActiveMtus& active_mtus);

// What lets GPU and HCA talk to each other directly, and what slows that down.

struct GpuFacts {
  bool has_nvidia = false;              // a GPU of NVIDIA's is on the node
  fabric::Attr<bool> nvidia_peermem{};  // loaded
  fabric::Attr<bool> nv_peer_mem{};     // its name before driver 470
  std::string driver_version;           // /proc/driver/nvidia/version; empty: not loaded
  std::string kernel;                   // "6.1.0-18-amd64"
  // ACS control register of bridges that GPUs and HCAs are below (PCI Express 5.0, 7.7.8.3); 0: it has no ACS.
  // Unreadable also when configuration space is cut off, as it is for who is not root.
  std::map<std::string, fabric::Attr<unsigned>> acs;
  std::map<std::string, std::string> iommu;  // by HCA: type of its IOMMU group, "identity", "DMA"; not there: no group
};

// ACS control of a function's configuration space; Unreadable EMSGSIZE: the extended part is not in it.
fabric::Attr<unsigned> acs_control(std::string_view configuration_space);

// The bridges that lie between a GPU and an HCA below a bridge that both share: what they send each other need not go
// higher. Pure.
std::vector<std::string> bridges_between(const fabric::Inventory& inventory);

// root: in front of /sys and /proc.
GpuFacts read_gpu_facts(const std::string& root, const fabric::Inventory& inventory);

// Pure: "gpudirect", "acs", "iommu".
std::vector<Check> check_gpus(const GpuFacts& facts, const fabric::Inventory& inventory);

// Flow control of RoCE rails, as far as `dcb` of iproute2 and sysfs show it. Hints: the switches have the last word.

struct RailQos {
  std::string netdev;
  std::optional<std::vector<unsigned>> pfc;  // priorities with PFC; nullopt: not known
  std::optional<bool> ecn;  // on some priority, as mlx5 of MLNX_OFED has it in sysfs; nullopt: not known
};

// The priorities that are on, of "prio-pfc 0:off 3:on" in what `dcb pfc show` prints; nullopt: it says nothing.
std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text);

// netdevs: of the RoCE rails. root: in front of /sys; `dcb` is asked on this node alone. unasked: gets an error if it
// cannot be executed.
std::vector<RailQos> read_qos(const std::string& root, const std::vector<std::string>& netdevs,
                              std::vector<Error>& unasked);

// Pure.
Check check_qos(const std::vector<RailQos>& rails);

// What the node says of its configuration: its slice of the ranges that are for all nodes (`per_node`), the sizes of
// ranges, and limits of RDMA objects. Pure, but for the file of NodeIndexSources.

// A warning for each pool of config.json with HCAs of this node that containers share without "hca_objects", and one
// for limits that the node cannot set. controller: nullopt: not looked at.
std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<Result<RdmaController>>& controller);

struct NodeIndexSources {
  std::optional<std::string> root;  // prefix of the file's path; nullopt: the node's files are not at hand
  bool knows_addresses = false;     // the inventory has those of the node's netdevs
  std::optional<std::string> name;  // NODE_NAME as it is here; nullopt: not set, which says nothing of the programs'
};

// What a container would be refused for. Nothing where it cannot be told from here: a note.
std::vector<Finding> check_node_index(const fabric::Inventory& inventory, Config config, const NodeIndexSources& from);

// Ranges of MAC addresses and GUIDs that are smaller than the functions are many whose pool gives them this network.
std::vector<Finding> check_vf_ranges(const fabric::Inventory& inventory, const Config& config);

// The ledger and its directory as doctor sees them: who holds what, whether that is alive, whether there is room.

// Where the GID of a container's rail was when the container started.
struct PlacedGid {
  std::string holder;  // the grant's label
  std::string hca;
  std::vector<fabric::Address> addresses;
  unsigned index = 0;
};

struct MovedGid {
  PlacedGid placed;
  std::optional<unsigned> index;  // where it is now; nullopt: nowhere
};

struct LedgerFacts {
  std::string path;
  std::uint64_t free_bytes = UINT64_MAX;  // of the file system it is in, or will be
  std::uint64_t free_files = UINT64_MAX;
  bool read_only = false;
  std::vector<Grant> grants;
  // The names that the node's HCAs have now, by PlannedHca::device.
  std::map<std::string, std::vector<std::string>> names;
  std::vector<PlacedGid> gids;  // of the grants that did not vanish
  std::vector<MovedGid> moved;  // of these, as moved_gids() finds them
  bool is_there = false;        // else nothing was given yet
  std::vector<Error> unread;    // grants, records of rails, or the ledger as a whole: its mode, its owner
};

// Nothing is made or written; without names and moved GIDs.
LedgerFacts read_ledger_facts(const std::string& path);

// Pure: those whose place another GID has, or none, of HCAs whose tables were read.
std::vector<MovedGid> moved_gids(const std::vector<PlacedGid>& placed, const fabric::Inventory& inventory);

// Pure.
Check check_ledger(const LedgerFacts& facts);

// The node's container engines as doctor sees them: what is installed and running, and what of it names our programs.

struct RunningProcess {
  std::string name;  // "containerd", "crio", "dockerd", "rdma-nri"
  int pid = 0;
  std::optional<std::uint64_t> memlock;  // hard RLIMIT_MEMLOCK, bytes; UINT64_MAX: unlimited; nullopt: not known
  std::optional<std::int64_t> started;   // seconds since the epoch
};

// A file of an engine's that names programs of ours, or that install wrote.
struct EngineFile {
  std::string path;
  Engine engine = Engine::kContainerd;
  bool read_at_start = false;  // the engine reads it when it starts, and then no more
  std::int64_t changed = 0;    // mtime, seconds since the epoch
  std::vector<std::string> programs;
};

struct OurProgram {
  std::string path;
  std::string named_in;
  int error = 0;                     // errno that keeps it from being executed; 0: none
  std::string version;               // "rdma-hook 0.1.0"; empty: it does not say
  std::optional<Error> unsafe = {};  // others than root can change it: it was not executed
};

struct RefusedEngine {
  std::string program;
  std::string why;     // it would not start again, or it was not asked; printable
  std::string remedy;  // empty: not known
};

struct EngineLimit {
  std::string unit;  // "containerd.service"
  std::uint64_t memlock = 0;
};

struct NodeEngines {
  Result<std::vector<FoundEngine>> found = std::vector<FoundEngine>();
  std::vector<RefusedEngine> refused;
  Result<std::optional<InstallRecord>> record = std::optional<InstallRecord>();
  std::vector<std::pair<std::string, EditState>> changed;  // files of the record that are not as installed
  std::vector<EngineFile> files;
  std::vector<std::string> unread;  // files that could not be read, each with why
  std::vector<OurProgram> programs;
  std::vector<RunningProcess> processes;
  std::vector<EngineLimit> units;
  std::vector<Error> unasked;              // why other programs were not asked
  std::optional<bool> docker_has_runtime;  // nullopt: not asked, or no answer
};

// root: the node's. programs: of ours that configuration names (config.json's `runtime`), with the file.
NodeEngines read_node_engines(const std::string& root);

// Pure: "engine", "programs", "memlock".
std::vector<Check> check_engines(const NodeEngines& engines);

// The paths of programs of ours in a text, each once: "/usr/local/bin/rdma-hook". Lines that begin with # are none.
std::vector<std::string> our_programs_in(std::string_view text);
// The last LimitMEMLOCK= of a unit's text, in bytes (systemd.exec(5)): "infinity", "64K", "8M:16M" (soft and hard: the
// hard one). nullopt: none, or one that cannot be read.
std::optional<std::uint64_t> unit_memlock(std::string_view text);

}  // namespace hook
